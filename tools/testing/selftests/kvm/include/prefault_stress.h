/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What prefault_stress_test is made of.
 *
 * A page holds one word, made of its number, a generation and a checksum.  There
 * are four regions, each a memslot, by what the disturbers may do and what
 * therefore has to be true:
 *
 *   KEEP    data survives: protection, fork, collapse, pageout, compaction, KSM
 *   LOG     the same without KSM, and dirty pages are logged into a shadow copy
 *   REFILL  data is thrown away and comes back by userfaultfd, newer than before
 *   HOT     a few pages are thrown away and written again all the time
 *
 * In KEEP and LOG each page has one vCPU that writes it.  The writer announces
 * a generation before the store and confirms it afterwards, so that any reader
 * knows, without a lock, between which generations the page has to be: what is
 * older comes from a stale mapping, or was lost.  In the other two the host
 * counts the steps of each page, odd while it is being replaced.
 */
#ifndef SELFTEST_KVM_PREFAULT_STRESS_H
#define SELFTEST_KVM_PREFAULT_STRESS_H

#include <pthread.h>

#include "kvm_util.h"
#include "prefault_util.h"

#define REGION_PAGES	1024
#define KEEP		0
#define LOG		REGION_PAGES
#define REFILL		(2 * REGION_PAGES)
#define HOT		(3 * REGION_PAGES)
#define ALL_PAGES	(4 * REGION_PAGES)
#define NR_REGIONS	(ALL_PAGES / REGION_PAGES)
/* Of HOT these are used: few, so that one is replaced while its neighbour faults. */
#define HOT_PAGES	16
/* Copies and discards of different groups run at the same time. */
#define GROUP		64
#define MAX_VCPUS	8

/* Guest memory, shared by all vCPUs and the host. */
struct stress_shared {
	u64 page_size;
	u32 nr_vcpus;
	u32 announced[ALL_PAGES];
	u32 confirmed[ALL_PAGES];
	/* REFILL and HOT only; odd while the page is being replaced. */
	u32 seq[ALL_PAGES];
	/* Odd while the memslot is not there, or somewhere else. */
	u32 slot_seq[NR_REGIONS];
};

/* Guest memory of one vCPU. */
struct stress_private {
	u32 id;
	struct kvm_random_state rng;
	u64 written;
	u64 checked;
};

struct stress_vcpu {
	struct kvm_vcpu *vcpu;
	struct stress_private *private;
	pthread_t thread;
	struct kvm_random_state rng;
	bool running;
};

/* How dirty pages are collected. */
enum stress_log {
	LOG_GET,	/* KVM_GET_DIRTY_LOG write-protects them */
	LOG_RING,
	LOG_CLEAR,	/* KVM_CLEAR_DIRTY_LOG does */
	NR_LOGS
};

/* Counted by all lives, each of which is a process. */
struct stress_counters {
	struct prefault_stats stats;
	u64 written, checked;
	u64 kicked, faulted, mmio, pre_faulted;
	u64 logging_lives[NR_LOGS], collected[NR_LOGS], reported;
	u64 emptied, refilled, merged, swapped;
	u64 steps[32];
};

/* One life: a VM, its memory and its threads. */
struct stress {
	u32 nr_vcpus;
	u64 page_size;
	u64 window;
	enum stress_log log;
	void *hva;
	/* What REFILL is to contain. */
	void *src;
	int uffd;
	struct kvm_random_state rng;
	pthread_mutex_t group[REGION_PAGES / GROUP];
	/* Held by who changes the protection of KEEP, and by fork(). */
	pthread_mutex_t protection;

	struct kvm_vm *vm;
	struct stress_shared *shared;
	struct stress_vcpu vcpus[MAX_VCPUS];
	bool stop;
	bool stop_handler;
	bool logging;
	u64 shadow[REGION_PAGES];
	unsigned long *dirty;

	struct stress_counters *sum;
};

extern struct stress st;

static inline u32 random_below(struct kvm_random_state *rng, u32 limit)
{
	/* The generator has 31 bits. */
	return (u64)kvm_random_u32(rng) * limit >> 31;
}

static inline void *host_page(u64 page)
{
	return st.hva + page * st.page_size;
}

static inline u64 host_word(u64 page)
{
	return READ_ONCE(*(u64 *)host_page(page));
}

static inline void count(u64 *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/*
 * Pages and the guest (lib/prefault_stress.c).
 */

u64 stress_word(u64 page, u64 gen);
/* Is this what @page may contain, its generation being one of @lo to @hi? */
bool stress_is_word(u64 word, u64 page, u32 lo, u32 hi);
/* The generation of a word that belongs into LOG. */
u32 stress_gen(u64 word);
/* Of four pages in LOG one is never touched, and one never written. */
bool stress_is_untouched(u64 page);
bool stress_is_read_only(u64 page);

void stress_guest_code(struct stress_private *me, struct stress_shared *shared);

/*
 * What happens to the memory (lib/prefault_disturb.c).
 */

struct disturber {
	const char *name;
	/* NULL: not a thread, but one of the ways in which lives end. */
	void (*step)(struct kvm_random_state *rng);
	/* Microseconds that it may pause between two steps, in a busy life. */
	u32 pause_min;
	bool on;

	/* In this one. */
	u32 pause;
	struct kvm_random_state rng;
	pthread_t thread;
};

/* The last one has no name. */
extern struct disturber disturbers[];

bool disturber_is_on(const char *name);
/* Leaves some of them out in this life, so that the rest has more time. */
void disturbers_choose(void);
void disturbers_start(void);
void disturbers_stop(void);

/*
 * There are many more threads than processors: for those that call this, vCPUs
 * and who races with them, it shall be as if there were not.
 */
void stress_be_important(void);

/* A memslot for the region that begins with page @first. */
void stress_set_slot(u64 first, u32 flags);
/* Pages that are missing in REFILL are copied by a thread from now on. */
void stress_start_refill(pthread_t *handler);
/* Collects dirty pages, and compares what they say with what was written. */
void stress_update_shadow(void);

/*
 * What tracepoints say (lib/prefault_tally.c).
 */

struct tally {
	/* Pages that were mapped, or migrated. */
	u64 pages;
	/* Windows that ended because of an invalidation. */
	u64 stale;
};

enum tally_of {
	TALLY_ALL,
	/* Those in LOG while it is logged. */
	TALLY_LOGGED,
	/* No windows, but pages that the host moved. */
	TALLY_MIGRATED,
};

/* Begins all. Returns false if there are no such tracepoints. */
bool tally_begin(void);
void tally_set_logged(bool on);
struct tally tally_read(enum tally_of of);
void tally_end(void);

#endif /* SELFTEST_KVM_PREFAULT_STRESS_H */
