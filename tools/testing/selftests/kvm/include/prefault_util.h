/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the tests of KVM_CAP_AUTO_PREFAULT share.
 *
 * A page is a page of the host here, as in the negotiated window.  Guest
 * pages are never larger.
 */
#ifndef SELFTEST_KVM_PREFAULT_UTIL_H
#define SELFTEST_KVM_PREFAULT_UTIL_H

#include <pthread.h>

#include "kvm_util.h"

/* What one window holds at most, whatever was negotiated. */
#define PREFAULT_PAGES_MAX	512

/*
 * Memory that is tested lies here, in guest physical and virtual addresses, far
 * from what the library uses.
 */
#define PREFAULT_GPA		0x100000000ull

/* Statistics of one vCPU.  One that the kernel does not have reads as 0. */
struct prefault_stats {
	u64 windows;
	u64 mapped;
	u64 absent;
	u64 raced;
	u64 backoff;
	u64 exits;

	/* x86 only: faults on guest memory, and those that took the fast path. */
	u64 pf_taken;
	u64 pf_fast;

	/* The same on arm64, for what was not mapped, and on riscv. */
	u64 stage2_faults;
	u64 gstage_faults;
	/* Not x86: faults on pages that were mapped, but read-only. */
	u64 write_faults;
};

void prefault_read_stats(struct kvm_vcpu *vcpu, struct prefault_stats *stats);

/* Adds what was counted between @start and @end to @sum. */
void prefault_add_stats(struct prefault_stats *sum,
			const struct prefault_stats *start,
			const struct prefault_stats *end);

/* Writes @value, all of it at once, into a file of sysfs, debugfs or the like. */
bool prefault_write_file(const char *path, const char *value);

int __vm_set_prefault(struct kvm_vm *vm, u64 window, u64 flags);
void vm_set_prefault(struct kvm_vm *vm, u64 window, u64 flags);

/*
 * Maps @size bytes, @offset bytes behind an address that is aligned to what one
 * window holds.  Huge pages are not used.  @flags are those of mmap().
 */
void *prefault_mmap(u64 size, u64 offset, int flags, int fd);

/* Puts resident memory into huge pages, as far as its address allows that. */
void prefault_make_huge(void *hva, u64 size);

/* Takes host memory out of KVM's page tables; it stays resident. */
void prefault_unmap_guest(void *hva, u64 size);

/* Number of pages that are resident; only meaningful for anonymous memory. */
u64 prefault_count_resident(void *hva, u64 size);

void prefault_shuffle(u32 *list, u32 nr, struct kvm_random_state *rng);

/* Guest memory that holds the page tables of prefault_virt_map(). */
struct prefault_tables {
	gva_t gva;
	u64 npages;
	u64 page_size;
};

/*
 * Maps @size bytes at @gpa, the virtual address is the same.  The page tables
 * for that are themselves mapped, too, right behind.  A guest that first reads
 * those takes no further fault for them, so that all that is counted later is
 * due to the memory under test.
 */
struct prefault_tables prefault_virt_map(struct kvm_vm *vm, gpa_t gpa, u64 size);

/* Called by the guest. */
static inline void prefault_touch_tables(const struct prefault_tables *tables)
{
	u64 i;

	for (i = 0; i < tables->npages; i++)
		READ_ONCE(*(u64 *)(tables->gva + i * tables->page_size));
}

/*
 * Memory that is missing until userfaultfd's handler, a thread, copies it, one
 * aligned chunk for each event.
 */
struct prefault_uffd {
	int fd;
	u64 size;
	u64 chunk;
	void *hva;
	void *src;
	void *stop_page;
	pthread_t thread;

	/* If set, called by the handler for each event before it copies. */
	void (*before_copy)(void);

	/* Offsets of the faults that were handled, in order. */
	u64 *offsets;
	u64 nr_events;
};

/* @src has @size bytes: what the memory at @hva is to contain. */
struct prefault_uffd *prefault_uffd_start(void *hva, u64 size, u64 chunk,
					  void *src);
/* The handler is gone then: the counters can be read, the rest stays missing. */
void prefault_uffd_stop(struct prefault_uffd *uffd);
void prefault_uffd_free(struct prefault_uffd *uffd);

/* The number that the option @what was given; ends the program if it is none. */
u32 prefault_parse_number(const char *what, const char *arg, u32 min, u32 max);

#endif /* SELFTEST_KVM_PREFAULT_UTIL_H */
