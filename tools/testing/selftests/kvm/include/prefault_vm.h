/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A VM for the tests of KVM_CAP_AUTO_PREFAULT.
 *
 * The memory under test is a memslot of its own (or several) at PREFAULT_GPA,
 * which the guest loads from and stores to by lists of pages.  What the guest
 * needs for that, e.g. its page tables, is mapped before each list, so that the
 * statistics of a list are due to its pages.
 *
 * Windows are expected to be served completely if nothing disturbs them.  As
 * the host is free to disturb them at any time, a window that maps fewer pages
 * than expected is tried again a few times; one that maps more never passes.
 *
 * Every test is a process of its own (kselftest_harness.h), with one VM at a
 * time: all of its state is in one place.
 */
#ifndef SELFTEST_KVM_PREFAULT_VM_H
#define SELFTEST_KVM_PREFAULT_VM_H

#include "kvm_util.h"
#include "prefault_util.h"

#define PVM_SLOT		1
#define PVM_MAX_VCPUS		2
#define PVM_TIMEOUT_SECONDS	240

/* The guest has virtual addresses for this many pages from PREFAULT_GPA on. */
#define PVM_SPAN		4096

/* What a guest reads where there is no memory. */
#define PVM_MMIO_VALUE		0x4d4d494f4d4d494full

/*
 * Where page faults are not counted all exits are, and some of those are due
 * to the host's interrupts.
 */
#ifdef __x86_64__
#define PVM_FAULT_NOISE		0
#else
#define PVM_FAULT_NOISE		40
#endif

enum pvm_op {
	PVM_WARM_UP,
	PVM_LOAD,
	PVM_STORE,
	PVM_WATCH,
	PVM_SCRIBBLE,
};

/* What a watched page is to contain while its sequence count is even. */
enum pvm_rule {
	PVM_SEQ,	/* the count itself */
	PVM_PATTERN,	/* the pattern of the page */
	PVM_MOVED,	/* ditto, moved by one page at every second step */
	PVM_INVERTED,	/* ditto, inverted at every second step */
};

/* Shared by the host and one vCPU. */
struct pvm_area {
	enum pvm_op op;
	enum pvm_rule rule;
	u64 page_size;
	struct prefault_tables tables;

	/* The pages of a list, what was loaded from each, what to store. */
	u64 nr;
	u64 value;
	u32 list[PVM_SPAN];
	u64 values[PVM_SPAN];

	/* PVM_WATCH and PVM_SCRIBBLE go through the list until told to stop. */
	u64 stop;
	u64 passes;
	u64 checked;

	/* Odd while the page is being changed; the first vCPU's are for all. */
	u64 seq[PVM_SPAN];

	u32 zero;
	u64 scratch;
};

extern struct pvm {
	u64 page_size;
	/* The largest window that is accepted, in bytes. */
	u64 max_size;
	/* The smallest window that is as good as that, in pages and in bytes. */
	u64 full_pages;
	u64 full_size;

	/* New VMs are left with the window of the module parameter. */
	bool keep_default;

	struct kvm_vm *vm;
	u32 nr_vcpus;
	struct kvm_vcpu *vcpus[PVM_MAX_VCPUS];
	struct pvm_area *areas[PVM_MAX_VCPUS];
	struct kvm_random_state rng;

	/* Accesses to guest memory that were left to userspace. */
	u64 nr_mmio_reads;
	u64 nr_mmio_writes;

	/* What makes room in a dirty ring; if unset, another thread does. */
	void (*ring_full)(void);
} pvm;

/* Ends the program if there is nothing to test. */
void pvm_require(void);
/* Is this x86 without the TDP MMU? */
bool pvm_uses_shadow_mmu(void);
/* For every test's setup and teardown. */
void pvm_set_up(void);
void pvm_tear_down(void);

/* New VMs have their window off. */
void pvm_create(u32 nr_vcpus);
void pvm_create_type(unsigned long type, u32 ring_bytes, u32 nr_vcpus);

/* What is in a page at first, and what the guest stores there for a value. */
u64 pvm_pattern(u64 page);
u64 pvm_stored(u64 page, u64 value);

void *pvm_page(void *hva, u64 page);
u64 *pvm_word(void *hva, u64 page);

/* Anonymous memory of @nr pages, with @offset_pages as in prefault_mmap(). */
void *pvm_mmap(u64 nr, u64 offset_pages);
/* Gives the @nr pages at @hva the patterns of the guest's pages from @first on. */
void pvm_fill(void *hva, u64 first, u64 nr);
/* A memslot for the guest's pages [first, first + nr). */
void pvm_set_slot(u32 slot, u32 flags, u64 first, u64 nr, void *hva);
/* The usual memory: anonymous, resident, with patterns, from the first page on. */
void *pvm_add_memory(u32 flags, u64 nr);

/* Runs one vCPU until it is done with @op. */
void pvm_run(u32 vcpu, enum pvm_op op);

/*
 * The first vCPU goes through a list, or through the pages [first, first + nr).
 * Return: what was counted meanwhile.
 */
struct prefault_stats pvm_run_list(enum pvm_op op, u64 nr);
struct prefault_stats pvm_load_range(u64 first, u64 nr);
struct prefault_stats pvm_load_page(u64 page);
struct prefault_stats pvm_store_page(u64 page, u64 value);
void pvm_list_range(u64 first, u64 nr);

u64 pvm_nr_faults(const struct prefault_stats *stats);

/* The last @nr loads are expected to have found their pages' patterns. */
void pvm_expect_patterns(u64 nr);
/* KVM_PRE_FAULT_MEMORY for the first @nr pages, until all of them are done. */
void pvm_pre_fault(u64 nr);
/* Loads [first, first + nr), and expects all of it to be mapped already. */
void pvm_expect_mapped(u64 first, u64 nr);
/*
 * Unmaps @size bytes at @hva from the guest, loads @page, and expects its
 * window to map exactly @want other pages.
 */
void pvm_expect_window(void *hva, u64 size, u64 page, u64 want);

/*
 * All vCPUs watch or write the pages [first, first + nr), each in an order of
 * its own, while the host does something else.
 */
void pvm_start_vcpus(enum pvm_op op, enum pvm_rule rule, u64 first, u64 nr);
void pvm_wait_for_passes(u64 nr);
void pvm_ask_to_stop(void);
u32 pvm_nr_running(void);
void pvm_stop_vcpus(void);
/* [first, first + nr) is about to be changed (odd), or has been (even). */
void pvm_next_step(u64 first, u64 nr);
/* Fails if no page was checked, or no window used, since the VM was created. */
void pvm_expect_watched(void);

u64 pvm_sum_of_windows(void);
u64 pvm_random(u64 limit);

#endif /* SELFTEST_KVM_PREFAULT_VM_H */
