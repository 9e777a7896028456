// SPDX-License-Identifier: GPL-2.0-only
/*
 * prefault_stress_test: what happens to the memory while vCPUs use it.
 */
#include <linux/bitmap.h>
#include <linux/userfaultfd.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <asm/barrier.h>

#include "prefault_stress.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

#define HOT_BURST	100

static u32 slot_of(u64 page)
{
	return 1 + page / REGION_PAGES;
}

/* A range inside one group. */
static u64 random_range(struct kvm_random_state *rng, u64 first, u64 *nr)
{
	u64 page = first + random_below(rng, REGION_PAGES);

	*nr = 1 + random_below(rng, GROUP - page % GROUP);
	return page;
}

/* What an entry above the last-level tables maps, or else the region. */
static u64 table_pages(void)
{
	return min(st.page_size / sizeof(u64), (u64)REGION_PAGES);
}

static void put_slot(u64 first, u32 flags, u64 at, u64 nr)
{
	vm_set_user_memory_region(st.vm, slot_of(first), flags,
				  PREFAULT_GPA + at * st.page_size, nr * st.page_size,
				  host_page(first));
}

void stress_set_slot(u64 first, u32 flags)
{
	put_slot(first, flags, first, REGION_PAGES);
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

/*
 * REFILL.
 */

static pthread_mutex_t *group_of(u64 page)
{
	return &st.group[(page - REFILL) / GROUP];
}

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
	u64 first = page - random_below(rng, page % GROUP + 1);
	u64 nr = page - first + 1 + random_below(rng, GROUP - page % GROUP);

	pthread_mutex_lock(group_of(page));
	copy_pages(first, nr);
	pthread_mutex_unlock(group_of(page));
}

void stress_be_important(void)
{
	/* May be refused: it only makes races more likely. */
	setpriority(PRIO_PROCESS, syscall(__NR_gettid), -10);
}

static void *refill_thread(void *arg)
{
	struct kvm_random_state *rng = arg;
	struct pollfd fd = { .fd = st.uffd, .events = POLLIN };
	struct uffdio_range range = { .len = st.page_size };
	struct uffd_msg msg;

	stress_be_important();
	while (!READ_ONCE(st.stop_handler)) {
		if (poll(&fd, 1, 50) <= 0 || read(st.uffd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		range.start = msg.arg.pagefault.address & ~(st.page_size - 1);
		copy_around((range.start - (u64)st.hva) / st.page_size, rng);
		/* A copy that finds a page wakes nobody. */
		TEST_ASSERT(!ioctl(st.uffd, UFFDIO_WAKE, &range),
			    __KVM_SYSCALL_ERROR("UFFDIO_WAKE", -1));
	}
	return NULL;
}

void stress_start_refill(pthread_t *handler)
{
	static struct kvm_random_state rng;
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
	rng = new_kvm_random_state(random_below(&st.rng, 1000000) + 1);
	kvm_pthread_create(handler, NULL, refill_thread, &rng);
}

static void disturb_fill(struct kvm_random_state *rng)
{
	copy_around(REFILL + random_below(rng, REGION_PAGES), rng);
}

/*
 * Pages get their next content, in what is copied from, and are thrown away.
 * The second time there is nothing: KVM may know that.
 */
static void replace_pages(u64 page, u64 nr, u32 times)
{
	u64 i;

	next_step(page, nr);
	for (i = page; i < page + nr; i++)
		*(u64 *)(st.src + (i - REFILL) * st.page_size) =
			stress_word(i, st.shared->seq[i] + 1);
	while (times--)
		kvm_madvise(host_page(page), nr * st.page_size, MADV_DONTNEED);
	next_step(page, nr);
}

static void disturb_dontneed(struct kvm_random_state *rng)
{
	u64 nr, page = random_range(rng, REFILL, &nr);

	pthread_mutex_lock(group_of(page));
	replace_pages(page, nr, 1);
	pthread_mutex_unlock(group_of(page));
}

/*
 * All of a table, whose groups are locked so that it stays empty meanwhile: the
 * first zap proves that, the second one may pass it.  Whatever is mapped later
 * has to be found by the next ones.
 */
static void disturb_table(struct kvm_random_state *rng)
{
	u64 nr = table_pages(), page = REFILL + random_below(rng, REGION_PAGES / nr) * nr, i;
	bool refilled;

	for (i = page; i < page + nr; i += GROUP)
		pthread_mutex_lock(group_of(i));
	refilled = prefault_count_resident(host_page(page), nr * st.page_size);
	replace_pages(page, nr, 2);
	for (i = page; i < page + nr; i += GROUP)
		pthread_mutex_unlock(group_of(i));

	count(&st.sum->emptied);
	if (refilled)
		count(&st.sum->refilled);
}

/*
 * HOT: a page becomes zero, and then gets its next word.
 */

static void replace_hot(u64 page, u64 nr, u64 discarded, u32 times)
{
	u64 i;

	next_step(page, nr);
	while (times--)
		kvm_madvise(host_page(page), discarded * st.page_size, MADV_DONTNEED);
	for (i = page; i < page + nr; i++)
		*(u64 *)host_page(i) = stress_word(i, st.shared->seq[i] + 1);
	next_step(page, nr);
}

/* Single pages for races with neighbours; now and then the table becomes empty. */
static void disturb_hot(struct kvm_random_state *rng)
{
	u32 i;

	for (i = 0; i < HOT_BURST; i++)
		replace_hot(HOT + random_below(rng, HOT_PAGES), 1, 1, 1);
	replace_hot(HOT, HOT_PAGES, table_pages(), 2);
}

/*
 * LOG.
 */

static bool may_be_reported(u64 page)
{
#ifdef __x86_64__
	/* A page that is faulted in for a load is mapped writable, and dirty. */
	return !stress_is_untouched(page);
#else
	return !stress_is_untouched(page) && !stress_is_read_only(page);
#endif
}

static void collect_ring(struct kvm_vcpu *vcpu)
{
	struct kvm_dirty_gfn *gfns = vcpu_map_dirty_ring(vcpu), *gfn;

	for (;;) {
		gfn = &gfns[vcpu->fetch_index % vcpu->dirty_gfns_count];
		/* Pairs with the release in KVM's kvm_dirty_ring_push(). */
		if (smp_load_acquire(&gfn->flags) != KVM_DIRTY_GFN_F_DIRTY)
			break;
		TEST_ASSERT(gfn->slot == slot_of(LOG) && gfn->offset < REGION_PAGES,
			    "Slot %u, page %llu is not logged", gfn->slot, gfn->offset);
		__set_bit(gfn->offset, st.dirty);
		/* Pairs with the acquire in KVM's kvm_dirty_ring_reset(). */
		smp_store_release(&gfn->flags, KVM_DIRTY_GFN_F_RESET);
		vcpu->fetch_index++;
	}
}

/* From here on, what is written to these pages is reported again. */
static void clear_log(void)
{
	u64 first, nr;

	for (first = 0; first < REGION_PAGES; first += nr) {
		nr = 64 * (1 + random_below(&st.rng, 4));
		nr = min(nr, REGION_PAGES - first);
		kvm_vm_clear_dirty_log(st.vm, slot_of(LOG), st.dirty + BIT_WORD(first),
				       first, nr);
	}
}

static void collect_dirty(void)
{
	u32 i;

	bitmap_zero(st.dirty, REGION_PAGES);
	if (st.log != LOG_RING)
		kvm_vm_get_dirty_log(st.vm, slot_of(LOG), st.dirty);
	if (st.log == LOG_CLEAR)
		clear_log();
	if (st.log == LOG_RING) {
		for (i = 0; i < st.nr_vcpus; i++)
			collect_ring(st.vcpus[i].vcpu);
		kvm_vm_reset_dirty_ring(st.vm);
	}
	count(&st.sum->collected[st.log]);
}

/* What was confirmed before dirty pages were collected is in the copy now. */
void stress_update_shadow(void)
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
			count(&st.sum->reported);
		}
		TEST_ASSERT(stress_gen(st.shadow[i]) >= lo[i],
			    "Page %lu was written (%u), but not reported since %u", i,
			    lo[i], stress_gen(st.shadow[i]));
	}
}

static void set_logging(bool on)
{
	u64 i;

	if (!on)
		tally_set_logged(false);
	stress_set_slot(LOG, on ? KVM_MEM_LOG_DIRTY_PAGES : 0);
	st.logging = on;
	for (i = 0; on && i < REGION_PAGES; i++)
		st.shadow[i] = host_word(LOG + i);
	if (on)
		tally_set_logged(true);
}

static void disturb_dirty(struct kvm_random_state *rng)
{
	if (!st.logging)
		set_logging(true);
	else if (random_below(rng, 20))
		stress_update_shadow();
	else
		set_logging(false);
}

/* What faults then, in LOG, is mapped again, by a window if it was a neighbour. */
static void disturb_unmap(struct kvm_random_state *rng)
{
	u64 nr, page = random_range(rng, LOG, &nr);

	prefault_unmap_guest(host_page(page), nr * st.page_size);
}

/*
 * KEEP, and all of them.
 */

static void disturb_mprotect(struct kvm_random_state *rng)
{
	const int prots[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE | PROT_EXEC };
	u64 nr, page = random_range(rng, KEEP, &nr);
	size_t size = nr * st.page_size;

	/* Others read LOG: it never loses a permission. */
	pthread_mutex_lock(&st.protection);
	TEST_ASSERT(!mprotect(host_page(page), size, prots[random_below(rng, 3)]),
		    __KVM_SYSCALL_ERROR("mprotect()", -1));
	/* Long enough for a vCPU to come by. */
	usleep(random_below(rng, 10000));
	TEST_ASSERT(!mprotect(host_page(page), size, PROT_READ | PROT_WRITE),
		    __KVM_SYSCALL_ERROR("mprotect()", -1));
	pthread_mutex_unlock(&st.protection);
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

/* Is it in swap? */
static bool is_swapped(u64 page)
{
	u64 entry = 0, at = (u64)host_page(page) / st.page_size * sizeof(entry);
	int fd = open("/proc/self/pagemap", O_RDONLY);

	if (fd < 0 || pread(fd, &entry, sizeof(entry), at) != sizeof(entry))
		entry = 0;
	if (fd >= 0)
		close(fd);
	return entry >> 62 & 1;
}

/* These may fail at any time: there is no swap, no memory, or a page is in use. */
static void disturb_pageout(struct kvm_random_state *rng)
{
	u64 nr, page = random_range(rng, random_below(rng, 3) * REGION_PAGES, &nr);

	madvise(host_page(page), nr * st.page_size, MADV_PAGEOUT);
	if (is_swapped(page))
		count(&st.sum->swapped);
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

/* ksmd, which runs all the time, merges twins; the guest or this takes them apart. */
static void disturb_ksm(struct kvm_random_state *rng)
{
	u64 nr, page = random_range(rng, KEEP, &nr);
	u64 merged = 0;
	FILE *f;

	if (!random_below(rng, 4))
		madvise(host_page(page), nr * st.page_size, MADV_UNMERGEABLE);
	else
		madvise(host_page(KEEP), REGION_PAGES * st.page_size, MADV_MERGEABLE);

	f = fopen("/proc/self/ksm_merging_pages", "r");
	if (!f)
		return;
	if (fscanf(f, "%lu", &merged) == 1 && merged)
		count(&st.sum->merged);
	fclose(f);
}

static void disturb_migrate(struct kvm_random_state *rng)
{
	prefault_write_file("/proc/sys/vm/compact_memory", "1");
}

/*
 * The VM.
 */

static void disturb_window(struct kvm_random_state *rng)
{
	u64 size = st.page_size << random_below(rng, 12);

	size = min(size, st.window);
	vm_set_prefault(st.vm, size == st.page_size ? 0 : size,
			random_below(rng, 2) ? KVM_AUTO_PREFAULT_FIXED : 0);
}

static void next_slot_step(u64 first)
{
	u32 *seq = &st.shared->slot_seq[first / REGION_PAGES];

	/* As in next_step(). */
	smp_wmb();
	WRITE_ONCE(*seq, *seq + 1);
	/* See above. */
	smp_mb();
}

/*
 * Gone and back, writable or not, or moved by a page and back: guests find no
 * memory, or that of the page before.
 */
static void disturb_slot(struct kvm_random_state *rng)
{
	u64 first = random_below(rng, 2) ? REFILL : HOT;
	u32 flags = random_below(rng, 2) ? KVM_MEM_READONLY : 0;

	next_slot_step(first);
	if (first == HOT && random_below(rng, 2)) {
		/* A move takes a memslot with the same flags. */
		put_slot(first, 0, first, 0);
		put_slot(first, flags, first, REGION_PAGES);
		put_slot(first, flags, first + 1, REGION_PAGES);
		usleep(random_below(rng, 3000));
		put_slot(first, flags, first, REGION_PAGES);
	} else {
		put_slot(first, 0, first, 0);
		usleep(random_below(rng, 3000));
		put_slot(first, flags, first, REGION_PAGES);
	}
	next_slot_step(first);
}

static void disturb_signal(struct kvm_random_state *rng)
{
	struct stress_vcpu *v = &st.vcpus[random_below(rng, st.nr_vcpus)];

	pthread_kill(v->thread, SIGUSR1);
}

/* The host reads, too. */
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
	TEST_ASSERT(stress_is_word(word, page, lo, hi),
		    "Host, page %lu: read %lx, generations %u to %u are possible",
		    page, word, lo, hi);
}

/*
 * Guests shall make progress: the longer it takes them to recover from something,
 * the longer is its pause.
 */
struct disturber disturbers[] = {
	{ "window", disturb_window, 20000 },
	{ "fill", disturb_fill, 5000 },
	{ "dontneed", disturb_dontneed, 5000 },
	{ "table", disturb_table, 200000 },
	{ "hot", disturb_hot, 2000 },
	{ "unmap", disturb_unmap, 5000 },
	{ "mprotect", disturb_mprotect, 5000 },
	{ "fork", disturb_fork, 500000 },
	{ "pageout", disturb_pageout, 20000 },
	{ "collapse", disturb_collapse, 400000 },
	{ "ksm", disturb_ksm, 100000 },
	{ "migrate", disturb_migrate, 3000000 },
	{ "slot", disturb_slot, 100000 },
	{ "dirty", disturb_dirty, 5000 },
	{ "signal", disturb_signal, 20000 },
	{ "check", disturb_check, 5000 },
	{ "kill" },
	{}
};

bool disturber_is_on(const char *name)
{
	struct disturber *d;

	for (d = disturbers; d->name; d++)
		if (!strcmp(d->name, name))
			return d->on;
	return false;
}

static void *disturber_thread(void *arg)
{
	struct disturber *d = arg;

	if (d->step == disturb_hot)
		stress_be_important();
	while (!READ_ONCE(st.stop)) {
		d->step(&d->rng);
		count(&st.sum->steps[d - disturbers]);
		usleep(random_below(&d->rng, d->pause));
	}
	return NULL;
}

void disturbers_choose(void)
{
	struct disturber *d;

	for (d = disturbers; d->name; d++)
		if (d->step != disturb_hot && random_below(&st.rng, 3))
			d->on = false;
}

void disturbers_start(void)
{
	struct disturber *d;

	for (d = disturbers; d->name; d++) {
		d->rng = new_kvm_random_state(random_below(&st.rng, 1000000) + 1);
		/* Calm in one life, busy in another. */
		d->pause = d->pause_min << random_below(&st.rng, 4);
		if (d->on && d->step)
			kvm_pthread_create(&d->thread, NULL, disturber_thread, d);
	}
}

void disturbers_stop(void)
{
	struct disturber *d;

	for (d = disturbers; d->name; d++)
		if (d->on && d->step)
			kvm_pthread_join(d->thread, NULL);
}
