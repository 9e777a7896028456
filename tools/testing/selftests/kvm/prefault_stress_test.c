// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_CAP_AUTO_PREFAULT under many disturbances at once
 *
 * Several vCPUs read and write self-checking pages all the time, while threads
 * do to the memory whatever the host may do to it.  A page holds one word, made
 * of its number, a generation and a checksum.  There are three regions, by what
 * the disturbers may do and what therefore has to be true:
 *
 *   KEEP    data survives: protection, fork, collapse, pageout, compaction
 *   LOG     the same, and dirty pages are logged into a shadow copy
 *   REFILL  data is thrown away and comes back by userfaultfd, newer than before
 *
 * In KEEP and LOG each page has one vCPU that writes it.  The writer announces
 * a generation before the store and confirms it afterwards, so that any reader
 * knows, without a lock, between which generations the page has to be: what is
 * older comes from a stale mapping, or was lost.
 */
#include <linux/bitmap.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <asm/barrier.h>

#include "prefault_vm.h"
#include "processor.h"
#include "ucall_common.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

#define FIXED		KVM_AUTO_PREFAULT_FIXED

#define REGION_PAGES	1024
#define KEEP		0
#define LOG		REGION_PAGES
#define REFILL		(2 * REGION_PAGES)
#define ALL_PAGES	(3 * REGION_PAGES)
/* Copies and discards of different groups run at the same time. */
#define GROUP		64
#define MAX_VCPUS	8
#define LIFE_SECONDS	10
#define STEPS		16

/* Guest memory, shared by all vCPUs and the host. */
struct shared {
	u64 page_size;
	u32 nr_vcpus;
	u32 announced[ALL_PAGES];
	u32 confirmed[ALL_PAGES];
	/* REFILL only; odd while the page is being replaced. */
	u32 seq[ALL_PAGES];
};

/* Guest memory of one vCPU. */
struct private {
	u32 id;
	struct kvm_random_state rng;
	u64 written;
	u64 checked;
};

static u32 random_below(struct kvm_random_state *rng, u32 limit)
{
	/* The generator has 31 bits. */
	return (u64)kvm_random_u32(rng) * limit >> 31;
}

static u64 word_of(u64 page, u64 gen)
{
	u64 word = page << 48 | (gen & 0xffffff) << 24;

	return word | word * 0x9e3779b97f4a7c15ull >> 40;
}

static u32 gen_of(u64 word)
{
	return word >> 24 & 0xffffff;
}

static bool is_word(u64 word, u64 page, u32 lo, u32 hi)
{
	u32 gen = gen_of(word);

	return word == word_of(page, gen) && gen >= lo && gen <= hi;
}

/* Of four pages in LOG one is never touched, and one never written. */
static bool is_untouched(u64 page)
{
	return page >= LOG && page < REFILL && page % 4 == 3;
}

static bool is_read_only(u64 page)
{
	return page >= LOG && page < REFILL && page % 4 == 2;
}

/*
 * The guest.
 */

static u64 *guest_page(struct shared *shared, u64 page)
{
	return (u64 *)(PREFAULT_GPA + page * shared->page_size);
}

static void write_page(struct private *me, struct shared *shared, u64 page)
{
	u32 gen = shared->confirmed[page] + 1;

	WRITE_ONCE(shared->announced[page], gen);
	/* Pairs with the second barrier of check_page() and host_check(). */
	smp_wmb();
	WRITE_ONCE(*guest_page(shared, page), word_of(page, gen));
	/* Pairs with the first one. */
	smp_wmb();
	WRITE_ONCE(shared->confirmed[page], gen);
	WRITE_ONCE(me->written, me->written + 1);
}

static void check_page(struct private *me, struct shared *shared, u64 page)
{
	u32 lo, hi;
	u64 word;

	lo = READ_ONCE(shared->confirmed[page]);
	/* Pairs with write_page(), as does the next one. */
	smp_rmb();
	word = READ_ONCE(*guest_page(shared, page));
	/* See above. */
	smp_rmb();
	hi = READ_ONCE(shared->announced[page]);

	__GUEST_ASSERT(is_word(word, page, lo, hi),
		       "vCPU %u, page %lu: read %lx, generations %u to %u are possible",
		       me->id, page, word, lo, hi);
	WRITE_ONCE(me->checked, me->checked + 1);
}

static void watch_page(struct private *me, struct shared *shared, u64 page)
{
	u32 seq = READ_ONCE(shared->seq[page]);
	u64 word;

	/* Pairs with the barriers in replace_pages(), as does the next one. */
	smp_rmb();
	word = READ_ONCE(*guest_page(shared, page));
	/* See above. */
	smp_rmb();
	if (seq & 1 || seq != READ_ONCE(shared->seq[page]))
		return;

	__GUEST_ASSERT(word == word_of(page, seq),
		       "vCPU %u, page %lu: expected %lx (step %u), read %lx",
		       me->id, page, word_of(page, seq), seq, word);
	WRITE_ONCE(me->checked, me->checked + 1);
}

static void touch_page(struct private *me, struct shared *shared, u64 page)
{
	if (is_untouched(page))
		return;
	if (page >= REFILL)
		watch_page(me, shared, page);
	else if (page / 4 % shared->nr_vcpus == me->id && !is_read_only(page) &&
		 random_below(&me->rng, 2))
		write_page(me, shared, page);
	else
		check_page(me, shared, page);
}

/* Single pages and runs of them, so that adaptive windows grow and shrink. */
static void guest_code(struct private *me, struct shared *shared)
{
	u64 page, nr, step;

	for (;;) {
		for (step = 0; step < STEPS; step++) {
			page = random_below(&me->rng, ALL_PAGES);
			nr = random_below(&me->rng, 2) ? 1 : random_below(&me->rng, GROUP);
			for (; nr && page < ALL_PAGES; nr--, page++)
				touch_page(me, shared, page);
		}
		GUEST_SYNC(0);
	}
}

/*
 * The host's side of it.
 */

struct vcpu_thread {
	struct kvm_vcpu *vcpu;
	struct private *private;
	pthread_t thread;
	struct kvm_random_state rng;
	bool running;
};

static struct {
	u32 seed;
	u32 seconds;
	u32 nr_vcpus;
	u64 page_size;
	u64 window;
	void *hva;
	/* What REFILL is to contain. */
	void *src;
	int uffd;
	pthread_mutex_t group[REGION_PAGES / GROUP];
	/* Held by who changes the protection of KEEP, and by fork(). */
	pthread_mutex_t protection;

	/* One life: a VM and its threads. */
	struct kvm_vm *vm;
	struct shared *shared;
	struct vcpu_thread vcpus[MAX_VCPUS];
	bool stop;
	bool stop_handler;
	bool ring;
	bool logging;
	u64 shadow[REGION_PAGES];
	unsigned long *dirty;

	struct prefault_stats sum;
	u64 written, checked;
	u64 kicked, faulted, pre_faulted, reported, compared;
} st;

static void *host_page(u64 page)
{
	return st.hva + page * st.page_size;
}

static u64 host_word(u64 page)
{
	return READ_ONCE(*(u64 *)host_page(page));
}

static void count(u64 *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* A range inside one group. */
static u64 random_range(struct kvm_random_state *rng, u64 first, u64 *nr)
{
	u64 page = first + random_below(rng, REGION_PAGES);

	*nr = 1 + random_below(rng, GROUP - page % GROUP);
	return page;
}

static void set_slot(u64 first, u32 flags)
{
	vm_set_user_memory_region(st.vm, 1 + first / REGION_PAGES, flags,
				  PREFAULT_GPA + first * st.page_size,
				  REGION_PAGES * st.page_size, host_page(first));
}

/*
 * REFILL.
 */

/* The group is locked: what is copied is not replaced meanwhile. */
static void copy_pages(u64 page, u64 nr)
{
	struct uffdio_copy copy;
	u64 done;

	for (; nr; nr -= done, page += done) {
		copy = (struct uffdio_copy){
			.dst = (u64)host_page(page),
			.src = (u64)st.src + (page - REFILL) * st.page_size,
			.len = nr * st.page_size,
		};
		if (!ioctl(st.uffd, UFFDIO_COPY, &copy))
			return;
		TEST_ASSERT(errno == EEXIST || errno == EAGAIN,
			    __KVM_SYSCALL_ERROR("UFFDIO_COPY", -1));
		/* Steps over what is there already. */
		done = copy.copy > 0 ? copy.copy / st.page_size : errno == EEXIST;
	}
}

static void copy_around(u64 page, struct kvm_random_state *rng)
{
	pthread_mutex_t *group = &st.group[(page - REFILL) / GROUP];
	u64 first = page - random_below(rng, page % GROUP + 1);
	u64 nr = page - first + 1 + random_below(rng, GROUP - page % GROUP);

	pthread_mutex_lock(group);
	copy_pages(first, nr);
	pthread_mutex_unlock(group);
}

static void *uffd_handler(void *arg)
{
	struct kvm_random_state rng = new_kvm_random_state(st.seed % 1000000 + 77);
	struct pollfd fd = { .fd = st.uffd, .events = POLLIN };
	struct uffdio_range range = { .len = st.page_size };
	struct uffd_msg msg;

	while (!READ_ONCE(st.stop_handler)) {
		if (poll(&fd, 1, 50) <= 0 || read(st.uffd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		range.start = msg.arg.pagefault.address & ~(st.page_size - 1);
		copy_around((range.start - (u64)st.hva) / st.page_size, &rng);
		/* A copy that finds a page wakes nobody. */
		TEST_ASSERT(!ioctl(st.uffd, UFFDIO_WAKE, &range),
			    __KVM_SYSCALL_ERROR("UFFDIO_WAKE", -1));
	}
	return NULL;
}

static void next_step(u64 page, u64 nr)
{
	u64 i;

	/* Pairs with watch_page(): the change is complete before the step is even, */
	smp_wmb();
	for (i = page; i < page + nr; i++)
		WRITE_ONCE(st.shared->seq[i], st.shared->seq[i] + 1);
	/* and the step is odd before the change begins. */
	smp_mb();
}

static void replace_pages(u64 page, u64 nr)
{
	pthread_mutex_t *group = &st.group[(page - REFILL) / GROUP];
	u64 i;

	pthread_mutex_lock(group);
	next_step(page, nr);
	for (i = page; i < page + nr; i++)
		*(u64 *)(st.src + (i - REFILL) * st.page_size) =
			word_of(i, st.shared->seq[i] + 1);
	kvm_madvise(host_page(page), nr * st.page_size, MADV_DONTNEED);
	next_step(page, nr);
	pthread_mutex_unlock(group);
}

/*
 * LOG.
 */

static bool may_be_reported(u64 page)
{
#ifdef __x86_64__
	/* A page that is faulted in for a load is mapped writable, and dirty. */
	return !is_untouched(page);
#else
	return !is_untouched(page) && !is_read_only(page);
#endif
}

static void collect_vcpu_ring(struct kvm_vcpu *vcpu)
{
	struct kvm_dirty_gfn *gfns = vcpu_map_dirty_ring(vcpu), *gfn;

	for (;;) {
		gfn = &gfns[vcpu->fetch_index % vcpu->dirty_gfns_count];
		/* Pairs with the release in KVM's kvm_dirty_ring_push(). */
		if (smp_load_acquire(&gfn->flags) != KVM_DIRTY_GFN_F_DIRTY)
			break;
		TEST_ASSERT(gfn->slot == 1 + LOG / REGION_PAGES && gfn->offset < REGION_PAGES,
			    "Slot %u, page %llu is not logged", gfn->slot, gfn->offset);
		__set_bit(gfn->offset, st.dirty);
		/* Pairs with the acquire in KVM's kvm_dirty_ring_reset(). */
		smp_store_release(&gfn->flags, KVM_DIRTY_GFN_F_RESET);
		vcpu->fetch_index++;
	}
}

static void collect_dirty(void)
{
	u32 i;

	bitmap_zero(st.dirty, REGION_PAGES);
	if (!st.ring) {
		kvm_vm_get_dirty_log(st.vm, 1 + LOG / REGION_PAGES, st.dirty);
		return;
	}
	for (i = 0; i < st.nr_vcpus; i++)
		collect_vcpu_ring(st.vcpus[i].vcpu);
	kvm_vm_reset_dirty_ring(st.vm);
}

/* What was confirmed before dirty pages were collected is in the copy now. */
static void update_shadow(void)
{
	u32 lo[REGION_PAGES];
	u64 i;

	memcpy(lo, &st.shared->confirmed[LOG], sizeof(lo));
	/* Pairs with write_page(). */
	smp_mb();
	collect_dirty();
	for (i = 0; i < REGION_PAGES; i++) {
		if (test_bit(i, st.dirty)) {
			TEST_ASSERT(may_be_reported(LOG + i),
				    "Page %lu was never written, but is dirty", i);
			st.shadow[i] = host_word(LOG + i);
			st.reported++;
		}
		TEST_ASSERT(gen_of(st.shadow[i]) >= lo[i],
			    "Page %lu was written (%u), but not reported since %u", i,
			    lo[i], gen_of(st.shadow[i]));
	}
	st.compared++;
}

static void set_logging(bool on)
{
	u64 i;

	set_slot(LOG, on ? KVM_MEM_LOG_DIRTY_PAGES : 0);
	st.logging = on;
	for (i = 0; on && i < REGION_PAGES; i++)
		st.shadow[i] = host_word(LOG + i);
}

/*
 * The disturbers: each does one thing, again and again, with pauses.
 */

static void disturb_window(struct kvm_random_state *rng)
{
	u64 size = st.page_size << random_below(rng, 12);

	size = min(size, st.window);
	vm_set_prefault(st.vm, size == st.page_size ? 0 : size,
			random_below(rng, 2) ? FIXED : 0);
}

static void disturb_fill(struct kvm_random_state *rng)
{
	copy_around(REFILL + random_below(rng, REGION_PAGES), rng);
}

static void disturb_dontneed(struct kvm_random_state *rng)
{
	u64 nr, page = random_range(rng, REFILL, &nr);

	replace_pages(page, nr);
}

static void disturb_mprotect(struct kvm_random_state *rng)
{
	const int prots[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE | PROT_EXEC };
	u64 nr, page = random_range(rng, KEEP, &nr);
	size_t size = nr * st.page_size;

	pthread_mutex_lock(&st.protection);
	TEST_ASSERT(!mprotect(host_page(page), size, prots[random_below(rng, 3)]),
		    __KVM_SYSCALL_ERROR("mprotect()", -1));
	usleep(random_below(rng, 3000));
	TEST_ASSERT(!mprotect(host_page(page), size, PROT_READ | PROT_WRITE),
		    __KVM_SYSCALL_ERROR("mprotect()", -1));
	pthread_mutex_unlock(&st.protection);
	/* Others read LOG: it never loses a permission. */
	prefault_unmap_guest(host_page(page + LOG), size);
}

/* The child has its own copy: what it writes is seen by nobody. */
static void scribble(struct kvm_random_state *rng)
{
	int i;

	for (i = 0; i < 50; i++)
		WRITE_ONCE(*(u64 *)host_page(random_below(rng, REFILL)), ~0ull);
}

static void disturb_fork(struct kvm_random_state *rng)
{
	u32 pause = random_below(rng, 3000);
	pid_t pid;

	pthread_mutex_lock(&st.protection);
	pid = fork();
	if (!pid) {
		scribble(rng);
		usleep(pause);
		scribble(rng);
		_exit(0);
	}
	pthread_mutex_unlock(&st.protection);
	TEST_ASSERT(pid > 0, __KVM_SYSCALL_ERROR("fork()", pid));
	TEST_ASSERT(waitpid(pid, NULL, 0) == pid, __KVM_SYSCALL_ERROR("waitpid()", -1));
}

/* These may fail at any time: there is no swap, no memory, or a page is in use. */
static void disturb_pageout(struct kvm_random_state *rng)
{
	u64 nr, page = random_range(rng, random_below(rng, 2) ? LOG : KEEP, &nr);

	madvise(host_page(page), nr * st.page_size, MADV_PAGEOUT);
}

static void disturb_collapse(struct kvm_random_state *rng)
{
	void *start = host_page(random_below(rng, REFILL / PREFAULT_PAGES_MAX) *
				PREFAULT_PAGES_MAX);
	size_t size = PREFAULT_PAGES_MAX * st.page_size;

	madvise(start, size, MADV_HUGEPAGE);
	madvise(start, size, MADV_COLLAPSE);
	if (random_below(rng, 2))
		madvise(start, size, MADV_NOHUGEPAGE);
}

static void disturb_migrate(struct kvm_random_state *rng)
{
	FILE *f = fopen("/proc/sys/vm/compact_memory", "w");

	if (!f)
		return;
	fputs("1", f);
	fclose(f);
}

static void disturb_dirty(struct kvm_random_state *rng)
{
	if (!st.logging)
		set_logging(true);
	else if (random_below(rng, 10))
		update_shadow();
	else
		set_logging(false);
}

static void disturb_signal(struct kvm_random_state *rng)
{
	struct vcpu_thread *v = &st.vcpus[random_below(rng, st.nr_vcpus)];

	pthread_kill(v->thread, SIGUSR1);
}

static void disturb_check(struct kvm_random_state *rng)
{
	u64 page = LOG + random_below(rng, REGION_PAGES), word;
	u32 lo, hi;

	lo = READ_ONCE(st.shared->confirmed[page]);
	/* Pairs with write_page(), as does the next one. */
	smp_rmb();
	word = host_word(page);
	/* See above. */
	smp_rmb();
	hi = READ_ONCE(st.shared->announced[page]);
	TEST_ASSERT(is_word(word, page, lo, hi),
		    "Host, page %lu: read %lx, generations %u to %u are possible",
		    page, word, lo, hi);
}

static struct disturber {
	const char *name;
	void (*step)(struct kvm_random_state *rng);
	u32 pause;
	bool on;
	u64 steps;
	struct kvm_random_state rng;
	pthread_t thread;
} disturbers[] = {
	{ "window", disturb_window, 20000 },
	{ "fill", disturb_fill, 2000 },
	{ "dontneed", disturb_dontneed, 1000 },
	{ "mprotect", disturb_mprotect, 3000 },
	{ "fork", disturb_fork, 100000 },
	{ "pageout", disturb_pageout, 5000 },
	{ "collapse", disturb_collapse, 30000 },
	{ "migrate", disturb_migrate, 300000 },
	{ "dirty", disturb_dirty, 3000 },
	{ "signal", disturb_signal, 3000 },
	{ "check", disturb_check, 500 },
	{}
};

static void *disturber_thread(void *arg)
{
	struct disturber *d = arg;

	while (!READ_ONCE(st.stop)) {
		d->step(&d->rng);
		d->steps++;
		usleep(random_below(&d->rng, d->pause));
	}
	return NULL;
}

/*
 * vCPUs.
 */

static void pre_fault(struct vcpu_thread *v)
{
	struct kvm_pre_fault_memory range;
	u64 nr, page;
	int ret;

	/* In LOG base reports what it faults in for this: leave it alone. */
	page = random_range(&v->rng, random_below(&v->rng, 2) ? REFILL : KEEP, &nr);
	range = (struct kvm_pre_fault_memory){
		.gpa = PREFAULT_GPA + page * st.page_size,
		.size = nr * st.page_size,
	};
	ret = __vcpu_ioctl(v->vcpu, KVM_PRE_FAULT_MEMORY, &range);
	TEST_ASSERT(!ret || errno == EINTR || errno == EAGAIN || errno == EFAULT,
		    KVM_IOCTL_ERROR(KVM_PRE_FAULT_MEMORY, ret));
	count(&st.pre_faulted);
}

/* Only memory that is protected, or a signal, makes KVM_RUN fail. */
static void expect_error(int error)
{
	TEST_ASSERT(error == EINTR || error == EFAULT,
		    "KVM_RUN should not fail with errno %d", error);
	count(error == EINTR ? &st.kicked : &st.faulted);
}

static void run_once(struct vcpu_thread *v)
{
	struct ucall uc;

	if (__vcpu_run(v->vcpu)) {
		expect_error(errno);
		return;
	}
	if (v->vcpu->run->exit_reason == KVM_EXIT_DIRTY_RING_FULL) {
		usleep(100);
		return;
	}
	switch (get_ucall(v->vcpu, &uc)) {
	case UCALL_SYNC:
		if (kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY))
			pre_fault(v);
		break;
	case UCALL_ABORT:
		REPORT_GUEST_ASSERT(uc);
		break;
	default:
		TEST_FAIL("Unexpected exit: %s", exit_reason_str(v->vcpu->run->exit_reason));
	}
}

static void *vcpu_thread(void *arg)
{
	struct vcpu_thread *v = arg;

	while (!READ_ONCE(st.stop))
		run_once(v);
	WRITE_ONCE(v->running, false);
	return NULL;
}

/*
 * A life.
 */

static void add_vcpu(u32 i)
{
	struct vcpu_thread *v = &st.vcpus[i];

	v->vcpu = vm_vcpu_add(st.vm, i, guest_code);
	v->rng = new_kvm_random_state(random_below(&kvm_rng, 1000000) + 1);
}

static void create_vm(bool ring)
{
	gva_t shared, private;
	u32 i;

	st.vm = __vm_create(VM_SHAPE_DEFAULT, st.nr_vcpus,
			    ALL_PAGES * st.page_size / MIN_PAGE_SIZE);
	st.ring = ring;
	if (ring)
		vm_enable_dirty_ring(st.vm, max_t(u64, 16384, st.page_size));
	prefault_virt_map(st.vm, PREFAULT_GPA, ALL_PAGES * st.page_size);
	for (i = 0; i < st.nr_vcpus; i++)
		add_vcpu(i);
	kvm_arch_vm_finalize_vcpus(st.vm);

	shared = vm_alloc(st.vm, align_up(sizeof(*st.shared), st.page_size),
			  KVM_UTIL_MIN_VADDR);
	st.shared = addr_gva2hva(st.vm, shared);
	memset(st.shared, 0, sizeof(*st.shared));
	st.shared->page_size = st.page_size;
	st.shared->nr_vcpus = st.nr_vcpus;
	for (i = 0; i < st.nr_vcpus; i++) {
		private = vm_alloc(st.vm, st.page_size, KVM_UTIL_MIN_VADDR);
		st.vcpus[i].private = addr_gva2hva(st.vm, private);
		st.vcpus[i].private->id = i;
		st.vcpus[i].private->rng = st.vcpus[i].rng;
		vcpu_args_set(st.vcpus[i].vcpu, 2, private, shared);
	}
}

static void fill_memory(void)
{
	u64 page;

	for (page = KEEP; page < REFILL; page++)
		*(u64 *)host_page(page) = word_of(page, 0);
	for (; page < ALL_PAGES; page++)
		*(u64 *)(st.src + (page - REFILL) * st.page_size) = word_of(page, 0);
	kvm_madvise(host_page(REFILL), REGION_PAGES * st.page_size, MADV_DONTNEED);
}

static void end_life(void)
{
	struct prefault_stats start = {}, end;
	u64 page;
	u32 i;

	for (page = KEEP; page < REFILL; page++)
		TEST_ASSERT(is_word(host_word(page), page, st.shared->confirmed[page],
				    st.shared->announced[page]),
			    "Page %lu is %lx at the end, should be generation %u", page,
			    host_word(page), st.shared->confirmed[page]);
	if (st.logging)
		update_shadow();
	for (page = 0; st.logging && page < REGION_PAGES; page++)
		TEST_ASSERT(st.shadow[page] == host_word(LOG + page),
			    "Page %lu is %lx in the copy, should be %lx", page,
			    st.shadow[page], host_word(LOG + page));
	for (i = 0; i < st.nr_vcpus; i++) {
		prefault_read_stats(st.vcpus[i].vcpu, &end);
		prefault_add_stats(&st.sum, &start, &end);
		st.written += st.vcpus[i].private->written;
		st.checked += st.vcpus[i].private->checked;
	}
	kvm_vm_free(st.vm);
}

static void start_threads(pthread_t *handler)
{
	struct disturber *d;
	u32 i;

	st.stop = false;
	st.stop_handler = false;
	kvm_pthread_create(handler, NULL, uffd_handler, NULL);
	for (i = 0; i < st.nr_vcpus; i++) {
		st.vcpus[i].running = true;
		kvm_pthread_create(&st.vcpus[i].thread, NULL, vcpu_thread, &st.vcpus[i]);
	}
	for (d = disturbers; d->name; d++)
		if (d->on)
			kvm_pthread_create(&d->thread, NULL, disturber_thread, d);
}

/* Whoever may wait for another thread goes first. */
static void stop_threads(pthread_t handler)
{
	struct disturber *d;
	u32 i;

	WRITE_ONCE(st.stop, true);
	for (d = disturbers; d->name; d++)
		if (d->on)
			kvm_pthread_join(d->thread, NULL);
	for (i = 0; i < st.nr_vcpus; i++) {
		while (READ_ONCE(st.vcpus[i].running)) {
			pthread_kill(st.vcpus[i].thread, SIGUSR1);
			usleep(1000);
		}
		kvm_pthread_join(st.vcpus[i].thread, NULL);
	}
	WRITE_ONCE(st.stop_handler, true);
	kvm_pthread_join(handler, NULL);
}

static void live(u32 seconds, bool ring)
{
	pthread_t handler;

	create_vm(ring);
	fill_memory();
	st.logging = false;
	set_slot(KEEP, 0);
	set_slot(LOG, 0);
	set_slot(REFILL, 0);
	vm_set_prefault(st.vm, min(st.window, PREFAULT_PAGES_MAX * st.page_size), FIXED);

	start_threads(&handler);
	sleep(seconds);
	stop_threads(handler);
	end_life();
}

/*
 * The program.
 */

static void open_uffd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { (u64)host_page(REFILL), REGION_PAGES * st.page_size },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	st.uffd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	TEST_ASSERT(st.uffd >= 0, __KVM_SYSCALL_ERROR("userfaultfd()", st.uffd));
	TEST_ASSERT(!ioctl(st.uffd, UFFDIO_API, &api), __KVM_SYSCALL_ERROR("UFFDIO_API", -1));
	TEST_ASSERT(!ioctl(st.uffd, UFFDIO_REGISTER, &reg),
		    __KVM_SYSCALL_ERROR("UFFDIO_REGISTER", -1));
}

static void do_nothing(int sig)
{
}

static void set_up(void)
{
	struct disturber *d;
	u32 i;

	kvm_rng = new_kvm_random_state(st.seed % (INT_MAX - 1) + 1);
	st.page_size = getpagesize();
	st.window = kvm_check_cap(KVM_CAP_AUTO_PREFAULT);
	st.hva = prefault_mmap(ALL_PAGES * st.page_size, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	st.src = prefault_mmap(REGION_PAGES * st.page_size, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	st.dirty = bitmap_zalloc(REGION_PAGES);
	for (i = 0; i < ARRAY_SIZE(st.group); i++)
		pthread_mutex_init(&st.group[i], NULL);
	pthread_mutex_init(&st.protection, NULL);
	for (d = disturbers; d->name; d++)
		d->rng = new_kvm_random_state(random_below(&kvm_rng, 1000000) + 1);
	signal(SIGUSR1, do_nothing);
	open_uffd();
}

static bool is_on(const char *name)
{
	struct disturber *d;

	for (d = disturbers; d->name; d++)
		if (!strcmp(d->name, name))
			return d->on;
	return false;
}

/* A run that has not exercised what it is for proves nothing. */
static void expect_exercised(void)
{
	struct disturber *d;

	TEST_ASSERT(st.sum.windows && st.sum.mapped, "No window was used");
	TEST_ASSERT(st.written && st.checked, "The guest should have written and checked");
	for (d = disturbers; d->name; d++)
		TEST_ASSERT(!d->on || d->steps, "'%s' has done nothing", d->name);
	TEST_ASSERT(!is_on("dontneed") || st.sum.raced, "No race was lost");
	TEST_ASSERT(!is_on("dirty") || st.reported, "No page was reported dirty");
	TEST_ASSERT(!is_on("signal") || st.kicked, "No vCPU was interrupted");
	TEST_ASSERT(!kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY) || st.pre_faulted,
		    "No vCPU has called KVM_PRE_FAULT_MEMORY");
}

static void choose(char *list)
{
	struct disturber *d;
	bool known;
	char *name;

	for (name = strtok(list, ","); name; name = strtok(NULL, ",")) {
		known = false;
		for (d = disturbers; d->name; d++) {
			if (strcmp(name, d->name) && strcmp(name, "all"))
				continue;
			d->on = true;
			known = true;
		}
		if (!known) {
			fprintf(stderr, "-d: there is no '%s'\n", name);
			exit(1);
		}
	}
}

static void help(const char *name)
{
	struct disturber *d;

	printf("usage: %s [-s seed] [-t seconds] [-v vCPUs] [-d names]\ndisturbers: all", name);
	for (d = disturbers; d->name; d++)
		printf(",%s", d->name);
	puts("");
	exit(0);
}

int main(int argc, char *argv[])
{
	char all[] = "all", *list = all;
	bool has_ring;
	u32 left, len;
	int opt;

	st.seed = kvm_random_seed;
	st.seconds = 20;
	st.nr_vcpus = 2;
	while ((opt = getopt(argc, argv, "s:t:v:d:h")) != -1) {
		switch (opt) {
		case 's':
			st.seed = prefault_parse_number("-s", optarg, 0, UINT_MAX);
			break;
		case 't':
			st.seconds = prefault_parse_number("-t", optarg, 1, 1000000);
			break;
		case 'v':
			st.nr_vcpus = prefault_parse_number("-v", optarg, 1, MAX_VCPUS);
			break;
		case 'd':
			list = optarg;
			break;
		default:
			help(argv[0]);
		}
	}
	printf("seed %u, %u s, %u vCPUs, disturbers: %s\n", st.seed, st.seconds, st.nr_vcpus, list);
	choose(list);
	pvm_require();
	has_ring = kvm_has_cap(KVM_CAP_DIRTY_LOG_RING) ||
		   kvm_has_cap(KVM_CAP_DIRTY_LOG_RING_ACQ_REL);
	set_up();

	len = min_t(u32, (st.seconds + 1) / 2, LIFE_SECONDS);
	for (left = st.seconds; left; left -= min(left, len))
		live(min(left, len), has_ring && left / len % 2);

	printf("written %lu checked %lu windows %lu mapped %lu raced %lu backoff %lu ",
	       st.written, st.checked, st.sum.windows, st.sum.mapped, st.sum.raced,
	       st.sum.backoff);
	printf("reported %lu collected %lu kicked %lu faulted %lu pre-faulted %lu\n",
	       st.reported, st.compared, st.kicked, st.faulted, st.pre_faulted);
	expect_exercised();
	return 0;
}
