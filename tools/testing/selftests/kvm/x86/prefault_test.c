// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_CAP_AUTO_PREFAULT and KVM_PRE_FAULT_MEMORY: what is peculiar to x86, or
 * needs an interface of the host that only few configurations have
 */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "kvm_test_harness.h"
#include "prefault_vm.h"
#include "processor.h"
#include "ucall_common.h"

#define FIXED	KVM_AUTO_PREFAULT_FIXED

FIXTURE(x86_prefault) { int unused; };
FIXTURE_TEARDOWN(x86_prefault) { pvm_tear_down(); }

FIXTURE_SETUP(x86_prefault)
{
	if (!kvm_has_cap(KVM_CAP_AUTO_PREFAULT))
		SKIP(return, "No KVM_CAP_AUTO_PREFAULT");
	pvm_set_up();
}

/* The ioctl is older than the capability: its tests run without that, too. */
FIXTURE(x86_ioctl) { int unused; };
FIXTURE_TEARDOWN(x86_ioctl) { pvm_tear_down(); }

FIXTURE_SETUP(x86_ioctl)
{
	if (!kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY))
		SKIP(return, "No KVM_CAP_PRE_FAULT_MEMORY");
	pvm_set_up();
	pvm.keep_default = true;
}

/*
 * Files of the host.
 */

/* Returns true if all of @value was written. */
static void read_file(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t len;

	TEST_ASSERT(fd >= 0, "Cannot open %s, errno: %d", path, errno);
	len = read(fd, buf, size - 1);
	TEST_ASSERT(len >= 0, "Cannot read %s, errno: %d", path, errno);
	buf[len] = 0;
	close(fd);
}

static u64 read_number(const char *path)
{
	char buf[32];

	read_file(path, buf, sizeof(buf));
	return strtoull(buf, NULL, 0);
}

#define KVM_PARAMETER(name)	"/sys/module/kvm/parameters/" name
#define NX_HUGE_PAGES		KVM_PARAMETER("nx_huge_pages")

static bool get_nx_huge_pages(void)
{
	char buf[8];

	read_file(NX_HUGE_PAGES, buf, sizeof(buf));
	return buf[0] == 'Y';
}

static void set_nx_huge_pages(bool on)
{
	TEST_ASSERT(prefault_write_file(NX_HUGE_PAGES, on ? "force" : "off"),
		    "Cannot write " NX_HUGE_PAGES);
}

/* Every change of the parameter makes all roots obsolete. */
static void toggle_nx_huge_pages(void)
{
	set_nx_huge_pages(!get_nx_huge_pages());
}

/*
 * KVM_PRE_FAULT_MEMORY of memory that is not there yet.
 */

#define HANG_SECONDS	20

static bool too_late;

static void on_alarm(int sig)
{
	WRITE_ONCE(too_late, true);
}

/* A signal is what ends an ioctl that would never end by itself. */
static void limit_time(unsigned int seconds)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval timer = {
		.it_value.tv_sec = seconds,
		.it_interval.tv_usec = seconds ? 200000 : 0,
	};

	/* Again and again: one signal may come between two ioctls. */
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Returns 0 or errno; @range says how far it got. */
static int pre_fault(struct kvm_pre_fault_memory *range)
{
	int ret;

	while (range->size) {
		ret = __vcpu_ioctl(pvm.vcpus[0], KVM_PRE_FAULT_MEMORY, range);
		TEST_ASSERT(!READ_ONCE(too_late), "KVM_PRE_FAULT_MEMORY hangs at page %llu",
			    (range->gpa - PREFAULT_GPA) / pvm.page_size);
		if (ret && errno != EINTR)
			return errno;
	}
	return 0;
}

static void pre_fault_pages(u64 first, u64 nr)
{
	struct kvm_pre_fault_memory range = {
		.gpa = PREFAULT_GPA + first * pvm.page_size,
		.size = nr * pvm.page_size,
	};
	int err = pre_fault(&range);

	TEST_ASSERT(!err, "KVM_PRE_FAULT_MEMORY of pages %lu to %lu should work, errno: %d",
		    first, first + nr - 1, err);
}

/*
 * Roots become obsolete while the ioctl waits for the page, i.e. between its
 * look at the root and its use.
 */
TEST_F_TIMEOUT(x86_ioctl, nx_huge_pages, PVM_TIMEOUT_SECONDS)
{
	const u64 nr = 32, size = nr * pvm.page_size;
	struct prefault_uffd *uffd;
	bool old;
	void *src;

	if (access(NX_HUGE_PAGES, W_OK))
		SKIP(return, NX_HUGE_PAGES " cannot be written");

	old = get_nx_huge_pages();
	pvm_create(1);
	src = pvm_mmap(nr, 0);
	pvm_fill(src, 0, nr);
	uffd = prefault_uffd_start(pvm_mmap(nr, 0), size, pvm.page_size, src);
	uffd->before_copy = toggle_nx_huge_pages;
	pvm_set_slot(PVM_SLOT, 0, 0, nr, uffd->hva);

	limit_time(HANG_SECONDS);
	pre_fault_pages(0, nr);
	limit_time(0);
	prefault_uffd_stop(uffd);
	TEST_ASSERT(uffd->nr_events == nr, "%lu pages were missing, %lu were asked for", nr,
		    uffd->nr_events);
	prefault_uffd_free(uffd);
	set_nx_huge_pages(old);

	pvm_load_range(0, nr);
	pvm_expect_patterns(nr);
}

static bool stop_deleting;
static u64 nr_deleted;

static void *delete_memslot(void *hva)
{
	while (!READ_ONCE(stop_deleting)) {
		pvm_set_slot(PVM_SLOT + 1, 0, PVM_SPAN - 1, 1, hva);
		pvm_set_slot(PVM_SLOT + 1, 0, PVM_SPAN - 1, 0, hva);
		WRITE_ONCE(nr_deleted, nr_deleted + 1);
	}
	return NULL;
}

/* So does deleting another memslot, which waits for the ioctl if that holds on. */
TEST_F_TIMEOUT(x86_ioctl, memslots, PVM_TIMEOUT_SECONDS)
{
	const u64 nr = 64, rounds = 100;
	pthread_t thread;
	u64 round;
	void *hva;

	pvm_create(1);
	hva = pvm_mmap(nr, 0);
	pvm_set_slot(PVM_SLOT, 0, 0, nr, hva);

	limit_time(2 * HANG_SECONDS);
	kvm_pthread_create(&thread, NULL, delete_memslot, pvm_mmap(1, 0));
	for (round = 0; round < rounds || READ_ONCE(nr_deleted) < 10; round++) {
		kvm_madvise(hva, nr * pvm.page_size, MADV_DONTNEED);
		pre_fault_pages(0, nr);
		TEST_ASSERT(!READ_ONCE(too_late), "Only %lu memslots were deleted", nr_deleted);
	}
	WRITE_ONCE(stop_deleting, true);
	kvm_pthread_join(thread, NULL);
	limit_time(0);

	pvm_fill(hva, 0, nr);
	pvm_load_range(0, nr);
	pvm_expect_patterns(nr);
}

static void on_sigbus(int sig)
{
}

/* Returns true if that worked.  The signal that comes with it is taken here. */
static bool poison(void *hva)
{
	struct sigaction action = { .sa_handler = on_sigbus }, old;
	int ret;

	sigaction(SIGBUS, &action, &old);
	ret = madvise(hva, pvm.page_size, MADV_HWPOISON);
	sigaction(SIGBUS, &old, NULL);
	return !ret;
}

/*
 * A poisoned page: the ioctl says so.  The signal is for those who touch it.
 */
TEST_F_TIMEOUT(x86_ioctl, poisoned_page, PVM_TIMEOUT_SECONDS)
{
	const u64 nr = 32, bad = 11;
	struct kvm_pre_fault_memory range = {
		.gpa = PREFAULT_GPA,
		.size = nr * pvm.page_size,
	};
	sigset_t sigbus, pending;
	void *hva;
	int err;

	pvm_create(1);
	hva = pvm_add_memory(0, nr);
	if (!poison(pvm_page(hva, bad)))
		SKIP(return, "Pages cannot be poisoned, errno: %d", errno);

	/* A signal that cannot be delivered must not be waited for. */
	sigemptyset(&sigbus);
	sigaddset(&sigbus, SIGBUS);
	pthread_sigmask(SIG_BLOCK, &sigbus, NULL);

	limit_time(HANG_SECONDS);
	err = pre_fault(&range);
	TEST_ASSERT(err == EHWPOISON && range.gpa == PREFAULT_GPA + bad * pvm.page_size,
		    "Expected EHWPOISON at page %lu, got errno %d at page %llu", bad, err,
		    (range.gpa - PREFAULT_GPA) / pvm.page_size);
	limit_time(0);
	sigpending(&pending);
	TEST_ASSERT(!sigismember(&pending, SIGBUS), "Nobody touched the page: no SIGBUS is due");

	if (!kvm_has_cap(KVM_CAP_AUTO_PREFAULT))
		return;

	/* A window leaves it out. */
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	prefault_unmap_guest(hva, bad * pvm.page_size);
	prefault_unmap_guest(pvm_page(hva, bad + 1), (nr - bad - 1) * pvm.page_size);
	pvm_load_page(0);
	pvm_expect_mapped(0, bad);
	pvm_expect_patterns(bad);
	pvm_expect_mapped(bad + 1, nr - bad - 1);
	pvm_expect_patterns(nr - bad - 1);
	sigpending(&pending);
	TEST_ASSERT(!sigismember(&pending, SIGBUS), "Nobody touched the page: no SIGBUS is due");
}

/*
 * Pages that the host shares.
 */

#define KSM(name)	"/sys/kernel/mm/ksm/" name

static void merge_pages(void *hva, u64 nr, u64 nr_saved)
{
	u64 before = read_number(KSM("pages_sharing"));
	int tries;

	kvm_madvise(hva, nr * pvm.page_size, MADV_MERGEABLE);
	for (tries = 0; tries < 300; tries++) {
		if (read_number(KSM("pages_sharing")) >= before + nr_saved)
			return;
		usleep(100000);
	}
	TEST_FAIL("%lu pages should be saved, KSM has saved %lu", nr_saved,
		  read_number(KSM("pages_sharing")) - before);
}

/* KSM's pages are mapped read-only, and stay as they are. */
TEST_F_TIMEOUT(x86_prefault, ksm, PVM_TIMEOUT_SECONDS)
{
	const u64 nr = 64, written = 3, twin = written + nr / 2;
	struct prefault_stats stats;
	u64 i, want;
	void *hva;

	if (access(KSM("run"), W_OK))
		SKIP(return, "No KSM");
	TEST_ASSERT(prefault_write_file(KSM("sleep_millisecs"), "1") &&
		    prefault_write_file(KSM("pages_to_scan"), "1000") &&
		    prefault_write_file(KSM("run"), "1"),
		    "Cannot start KSM");

	/* Every content is there twice. */
	pvm_create(1);
	hva = pvm_mmap(nr, 0);
	for (i = 0; i < nr; i++)
		*pvm_word(hva, i) = pvm_pattern(i % (nr / 2));
	merge_pages(hva, nr, nr / 2);
	/* Merged pages are merged; nothing else is to change meanwhile. */
	TEST_ASSERT(prefault_write_file(KSM("run"), "0"), "Cannot stop KSM");

	pvm_set_slot(PVM_SLOT, 0, 0, nr, hva);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	pvm_expect_window(hva, nr * pvm.page_size, 0, nr - 1);
	pvm_expect_mapped(0, nr);

	/* The guest's store is for its own page only. */
	stats = pvm_store_page(written, 1);
	TEST_ASSERT(stats.pf_taken, "A store to a shared page should fault");
	pvm_load_range(0, nr);
	for (i = 0; i < nr; i++) {
		want = i == written ? pvm_stored(i, 1) : pvm_pattern(i % (nr / 2));
		TEST_ASSERT(pvm.areas[0]->values[i] == want && *pvm_word(hva, i) == want,
			    "Page %lu (page %lu was written, shared with %lu): expected %lx, the guest reads %lx",
			    i, written, twin, want, pvm.areas[0]->values[i]);
	}

	/* A store takes no neighbours that are shared: there is one that is not. */
	prefault_unmap_guest(hva, nr * pvm.page_size);
	stats = pvm_store_page(twin, 2);
	TEST_ASSERT(stats.windows == 1 && stats.mapped <= 1,
		    "Expected one window with 1 page at most, got %lu with %lu", stats.windows,
		    stats.mapped);
	TEST_ASSERT(*pvm_word(hva, written) == pvm_stored(written, 1) &&
		    *pvm_word(hva, twin) == pvm_stored(twin, 2), "A store is lost");

	prefault_write_file(KSM("run"), "2");
	prefault_write_file(KSM("run"), "0");
}

/*
 * Whether a page is idle.
 */

#define PAGE_IDLE_BITMAP	"/sys/kernel/mm/page_idle/bitmap"

struct page_idle {
	int pagemap;
	int bitmap;
};

static u64 page_frame(const struct page_idle *files, void *hva)
{
	u64 entry;

	TEST_ASSERT(pread(files->pagemap, &entry, sizeof(entry),
			  (u64)hva / pvm.page_size * sizeof(entry)) == sizeof(entry) &&
		    entry & BIT_ULL(63), "Page at %p is not present", hva);
	return entry & (BIT_ULL(55) - 1);
}

static bool is_idle(const struct page_idle *files, void *hva)
{
	u64 frame = page_frame(files, hva), bits;

	TEST_ASSERT(pread(files->bitmap, &bits, sizeof(bits), frame / 64 * 8) == sizeof(bits),
		    "Cannot read " PAGE_IDLE_BITMAP);
	return bits & BIT_ULL(frame % 64);
}

static void mark_idle(const struct page_idle *files, void *hva)
{
	u64 frame = page_frame(files, hva), bits = BIT_ULL(frame % 64);

	TEST_ASSERT(pwrite(files->bitmap, &bits, sizeof(bits), frame / 64 * 8) == sizeof(bits),
		    "Cannot write " PAGE_IDLE_BITMAP);
}

FIXTURE(x86_prefault_idle) { int unused; };
FIXTURE_TEARDOWN(x86_prefault_idle) { pvm_tear_down(); }

FIXTURE_VARIANT(x86_prefault_idle) {
	u32 flags;
	bool ioctl;
};

FIXTURE_SETUP(x86_prefault_idle)
{
	if (!kvm_has_cap(KVM_CAP_AUTO_PREFAULT))
		SKIP(return, "No KVM_CAP_AUTO_PREFAULT");
	pvm_set_up();
}

FIXTURE_VARIANT_ADD(x86_prefault_idle, window) { };
FIXTURE_VARIANT_ADD(x86_prefault_idle, window_logged) { .flags = KVM_MEM_LOG_DIRTY_PAGES };
FIXTURE_VARIANT_ADD(x86_prefault_idle, ioctl) { .ioctl = true };

/* To be mapped is not to be used. */
TEST_F_TIMEOUT(x86_prefault_idle, neighbours, PVM_TIMEOUT_SECONDS)
{
	const u64 touched = 100, nr = pvm.full_pages;
	struct page_idle files = {
		.pagemap = open("/proc/self/pagemap", O_RDONLY),
		.bitmap = open(PAGE_IDLE_BITMAP, O_RDWR),
	};
	u64 i, nr_marked = 0, nr_used = 0;
	bool *marked;
	void *hva;

	if (files.pagemap < 0 || files.bitmap < 0)
		SKIP(return, "No idle page tracking");
	if (variant->ioctl && pvm_uses_shadow_mmu())
		SKIP(return, "The shadow MMU faults every page in, which is an access");

	pvm_create(1);
	hva = pvm_add_memory(variant->flags, nr);
	marked = calloc(nr, sizeof(*marked));

	/* Pages that are not in an LRU list yet cannot be marked. */
	for (i = 0; i < nr; i++) {
		mark_idle(&files, pvm_page(hva, i));
		marked[i] = is_idle(&files, pvm_page(hva, i));
		nr_marked += marked[i];
	}
	TEST_ASSERT(nr_marked >= nr / 2 && marked[touched],
		    "Only %lu of %lu pages can be marked idle", nr_marked, nr);

	if (variant->ioctl) {
		pre_fault_pages(0, nr);
	} else {
		vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
		pvm_expect_window(hva, pvm.full_size, touched, nr - 1);
	}
	for (i = 0; i < nr; i++) {
		/* The ioctl faults the first page in, which was always an access. */
		if (i == (variant->ioctl ? 0 : touched) || !marked[i])
			continue;
		TEST_ASSERT(is_idle(&files, pvm_page(hva, i)),
			    "Page %lu was only mapped, but is not idle any more", i);
	}
	TEST_ASSERT(is_idle(&files, pvm_page(hva, touched)) == variant->ioctl,
		    "The page that was touched should%s be idle", variant->ioctl ? "" : " not");

	/* What is used is seen to be. */
	pvm_expect_mapped(0, nr);
	pvm_expect_patterns(nr);
	for (i = 0; i < nr; i++)
		nr_used += marked[i] && !is_idle(&files, pvm_page(hva, i));
	TEST_ASSERT(nr_used >= nr_marked * 9 / 10,
		    "%lu idle pages were loaded from, but only %lu of them are not idle",
		    nr_marked, nr_used);
	free(marked);
}

/*
 * Memory that is not there for the guest.
 */
TEST_F_TIMEOUT(x86_prefault, mmio, PVM_TIMEOUT_SECONDS)
{
	const u64 nr = 100, hole = pvm.full_pages - nr;
	struct prefault_stats stats;
	void *hva;
	u64 i;

	pvm_create(1);
	pvm_add_memory(0, nr);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);

	/* Twice: KVM notes in its page table that there is nothing. */
	for (i = 0; i < 2; i++) {
		stats = pvm_load_range(nr, hole);
		TEST_ASSERT(!stats.windows && !stats.mapped,
			    "There is nothing to prefault around MMIO, mapped %lu pages",
			    stats.mapped);
	}
	pvm_list_range(nr, hole);
	stats = pvm_run_list(PVM_STORE, hole);
	TEST_ASSERT(!stats.windows && pvm.nr_mmio_writes == hole &&
		    pvm.nr_mmio_reads == 2 * hole,
		    "%lu stores and %lu loads should end in userspace, %lu and %lu did",
		    hole, 2 * hole, pvm.nr_mmio_writes, pvm.nr_mmio_reads);

	/* A window next to it ends there, and memory may come later. */
	stats = pvm_load_page(nr / 2);
	TEST_ASSERT(stats.windows == 1 && stats.mapped == nr - 1,
		    "Expected a window with %lu pages, got %lu", nr - 1, stats.mapped);
	hva = pvm_mmap(hole, 0);
	pvm_fill(hva, nr, hole);
	pvm_set_slot(PVM_SLOT + 1, 0, nr, hole, hva);
	pvm_load_range(0, pvm.full_pages);
	pvm_expect_patterns(pvm.full_pages);
}

/*
 * Asynchronous page faults.
 */

#define TRACING		"/sys/kernel/tracing/"
#define APF_READY	TRACING "events/kvm/kvm_async_pf_ready/enable"

/* How often @name is in the trace. */
static u64 count_traced(const char *name)
{
	FILE *file = fopen(TRACING "trace", "r");
	char line[512];
	u64 count = 0;

	TEST_ASSERT(file, "Cannot read the trace");
	while (fgets(line, sizeof(line), file))
		count += !!strstr(line, name);
	fclose(file);
	return count;
}

/*
 * A vCPU that can take interrupts need not wait for userfaultfd in the fault:
 * a worker does.  The page is mapped when that is done, and its neighbours then.
 */
TEST_F_TIMEOUT(x86_prefault, async_page_fault, PVM_TIMEOUT_SECONDS)
{
	const u64 nr = PVM_SPAN, chunk = 16, touched = nr / chunk / 2;
	struct prefault_stats stats;
	struct prefault_uffd *uffd;
	struct kvm_regs regs;
	u64 i, ready;
	void *src;

	if (access(APF_READY, W_OK))
		SKIP(return, "No tracing");

	pvm_create(1);
	vcpu_regs_get(pvm.vcpus[0], &regs);
	regs.rflags |= X86_EFLAGS_IF;
	vcpu_regs_set(pvm.vcpus[0], &regs);

	src = pvm_mmap(nr, 0);
	pvm_fill(src, 0, nr);
	uffd = prefault_uffd_start(pvm_mmap(nr, 0), nr * pvm.page_size, chunk * pvm.page_size,
				   src);
	pvm_set_slot(PVM_SLOT, 0, 0, nr, uffd->hva);
	vm_set_prefault(pvm.vm, chunk * pvm.page_size, FIXED);

	prefault_write_file(TRACING "trace", "\n");
	TEST_ASSERT(prefault_write_file(APF_READY, "1"), "Cannot trace");
	for (i = 0; i < touched; i++)
		pvm.areas[0]->list[i] = 2 * i * chunk + pvm_random(chunk);
	prefault_shuffle(pvm.areas[0]->list, touched, &pvm.rng);
	stats = pvm_run_list(PVM_LOAD, touched);
	prefault_write_file(APF_READY, "0");
	ready = count_traced("kvm_async_pf_ready:");
	pvm_expect_patterns(touched);

	TEST_ASSERT(ready >= touched / 2, "%lu faults should be asynchronous, %lu were",
		    touched, ready);
	TEST_ASSERT(stats.windows <= touched,
		    "%lu faults may have one window each, there were %lu", touched,
		    stats.windows);
	TEST_ASSERT(stats.mapped >= touched * (chunk - 1) * 9 / 10,
		    "%lu chunks should be mapped, by %lu pages, mapped %lu", touched, chunk,
		    stats.mapped);

	prefault_uffd_stop(uffd);
	TEST_ASSERT(uffd->nr_events == touched, "%lu chunks were touched, %lu events", touched,
		    uffd->nr_events);
	prefault_uffd_free(uffd);
}

/*
 * The workaround for CPUs that must not execute from huge pages in a guest.
 */

#define NX_GVA		PREFAULT_GPA
#define NX_HUGE_NR	4
#define NX_PAGES	(NX_HUGE_NR * PREFAULT_PAGES_MAX)
#define RET_INSN	0xc3

static struct nx_list {
	struct prefault_tables tables;
	bool execute;
	u64 first;
	u64 nr;
} nx_list;

static void guest_nx(void)
{
	u64 i, gva;

	for (;;) {
		prefault_touch_tables(&nx_list.tables);
		for (i = 0; i < nx_list.nr; i++) {
			gva = NX_GVA + (nx_list.first + i) * PAGE_SIZE;
			if (nx_list.execute)
				((void (*)(void))gva)();
			else
				READ_ONCE(*(u64 *)gva);
		}
		GUEST_SYNC(0);
	}
}

static struct prefault_stats nx_run(struct kvm_vcpu *vcpu, bool execute, u64 first, u64 nr)
{
	struct nx_list *list = addr_gva2hva(pvm.vm, (gva_t)&nx_list);
	struct prefault_stats start, end, sum = {};
	struct ucall uc;

	list->execute = execute;
	list->first = first;
	list->nr = nr;
	prefault_read_stats(vcpu, &start);
	vcpu_run(vcpu);
	prefault_read_stats(vcpu, &end);
	TEST_ASSERT(get_ucall(vcpu, &uc) == UCALL_SYNC, "Unexpected exit: %s",
		    exit_reason_str(vcpu->run->exit_reason));
	prefault_add_stats(&sum, &start, &end);
	return sum;
}

static bool set_recovery(const char *ratio, const char *period_ms)
{
	return prefault_write_file(KVM_PARAMETER("nx_huge_pages_recovery_ratio"), ratio) &&
	       prefault_write_file(KVM_PARAMETER("nx_huge_pages_recovery_period_ms"), period_ms);
}

static void wait_for_recovery(void)
{
	int tries;

	for (tries = 0; tries < 200 && vm_get_stat(pvm.vm, nx_lpage_splits); tries++)
		usleep(50000);
	TEST_ASSERT(!vm_get_stat(pvm.vm, nx_lpage_splits),
		    "Split huge pages should be given back");
}

/* Was the workaround on before the test? */
static bool nx_before;
static void *nx_hva;

/* Huge pages full of code; returns NULL if there are none. */
static struct kvm_vcpu *nx_create(void)
{
	struct kvm_vcpu *vcpu;
	struct nx_list *list;

	if (!thp_configured() || access(NX_HUGE_PAGES, W_OK))
		return NULL;

	nx_before = get_nx_huge_pages();
	set_nx_huge_pages(true);
	pvm.vm = vm_create_with_one_vcpu(&vcpu, guest_nx);
	nx_hva = pvm_mmap(NX_PAGES, 0);
	kvm_madvise(nx_hva, NX_PAGES * PAGE_SIZE, MADV_HUGEPAGE);
	memset(nx_hva, RET_INSN, NX_PAGES * PAGE_SIZE);
	pvm_set_slot(PVM_SLOT, 0, 0, NX_PAGES, nx_hva);
	list = addr_gva2hva(pvm.vm, (gva_t)&nx_list);
	list->tables = prefault_virt_map(pvm.vm, NX_GVA, NX_PAGES * PAGE_SIZE);
	nx_run(vcpu, false, 0, 0);
	return vcpu;
}

/*
 * The window of an instruction fetch: 4K pages in place of a huge one, which are
 * executable, and which are given back as one.
 */
TEST_F_TIMEOUT(x86_prefault, nx_huge_pages, PVM_TIMEOUT_SECONDS)
{
	struct kvm_vcpu *vcpu = nx_create();
	struct prefault_stats stats;
	int i;

	if (!vcpu || !set_recovery("1", "100"))
		SKIP(return, "No NX huge pages");

	/* Data is huge as it has always been. */
	stats = nx_run(vcpu, false, PREFAULT_PAGES_MAX, 1);
	if (vm_get_stat(pvm.vm, pages_2m) != 1)
		SKIP(return, "No huge page");

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	for (i = 0; i < 3; i++) {
		/* Not at once: it could take the table before its window is looked at. */
		set_recovery("0", "100");
		stats = nx_run(vcpu, true, 5, 1);
		TEST_ASSERT(stats.windows == 1 && stats.mapped <= PREFAULT_PAGES_MAX - 1,
			    "Expected a window, got %lu", stats.windows);
		TEST_ASSERT(vm_get_stat(pvm.vm, pages_2m) == 1,
			    "Code in a huge page should be mapped by 4K pages");
		set_recovery("1", "100");
		wait_for_recovery();
	}

	/* Without recovery all of it stays there. */
	set_recovery("0", "100");
	stats = nx_run(vcpu, true, 5, 1);
	TEST_ASSERT(stats.windows == 1 && stats.mapped == PREFAULT_PAGES_MAX - 1,
		    "Expected a window with %u pages, got %lu with %lu", PREFAULT_PAGES_MAX - 1,
		    stats.windows, stats.mapped);
	stats = nx_run(vcpu, true, 0, PREFAULT_PAGES_MAX);
	TEST_ASSERT(!stats.pf_taken, "All should be executable, took %lu faults",
		    stats.pf_taken);
	TEST_ASSERT(vm_get_stat(pvm.vm, nx_lpage_splits) == 1, "One huge page is split, not %lu",
		    vm_get_stat(pvm.vm, nx_lpage_splits));

	set_recovery("1", "100");
	wait_for_recovery();
	stats = nx_run(vcpu, false, 0, PREFAULT_PAGES_MAX);
	TEST_ASSERT(vm_get_stat(pvm.vm, pages_2m) == 2,
		    "Both huge pages should be mapped as such, %lu are",
		    vm_get_stat(pvm.vm, pages_2m));

	set_nx_huge_pages(nx_before);
	set_recovery("0", "0");
}

/* The huge neighbours of data: they leave code alone, and do not become any. */
TEST_F_TIMEOUT(x86_prefault, nx_huge_neighbours, PVM_TIMEOUT_SECONDS)
{
	const u64 code = 5, neighbour = 2 * PREFAULT_PAGES_MAX + 7;
	struct kvm_vcpu *vcpu = nx_create();
	struct prefault_stats stats;

	if (!vcpu)
		SKIP(return, "No NX huge pages");

	nx_run(vcpu, true, code, 1);
	TEST_ASSERT(vm_get_stat(pvm.vm, nx_lpage_splits) == 1, "Code should be in small pages");

	vm_set_prefault(pvm.vm, (u64)NX_PAGES * PAGE_SIZE, FIXED);
	stats = nx_run(vcpu, false, PREFAULT_PAGES_MAX, 1);
	TEST_ASSERT(stats.windows == 1 && vm_get_stat(pvm.vm, pages_2m) == NX_HUGE_NR - 1,
		    "Expected a window and %u huge pages, got %lu and %lu", NX_HUGE_NR - 1,
		    stats.windows, vm_get_stat(pvm.vm, pages_2m));
	stats = nx_run(vcpu, false, PREFAULT_PAGES_MAX, NX_PAGES - PREFAULT_PAGES_MAX);
	TEST_ASSERT(!stats.pf_taken, "Data should be mapped, took %lu faults", stats.pf_taken);
	stats = nx_run(vcpu, true, code, 1);
	TEST_ASSERT(!stats.pf_taken, "Code should still be mapped, took %lu faults",
		    stats.pf_taken);

	/* A neighbour is executable once it is in small pages, as ever. */
	stats = nx_run(vcpu, true, neighbour, 1);
	TEST_ASSERT(stats.pf_taken && vm_get_stat(pvm.vm, pages_2m) == NX_HUGE_NR - 2 &&
		    vm_get_stat(pvm.vm, nx_lpage_splits) == 2,
		    "A huge neighbour should not be executable: %lu faults, %lu huge pages, %lu splits",
		    stats.pf_taken, vm_get_stat(pvm.vm, pages_2m),
		    vm_get_stat(pvm.vm, nx_lpage_splits));

	set_nx_huge_pages(nx_before);
}

/*
 * The recovery takes tables away while zaps leave hints at the entries that point
 * to them, and faults clear these hints: what the recovery sees change may well be
 * the entry that it is about to replace.
 */
TEST_F_TIMEOUT(x86_prefault, nx_recovery_of_empty, PVM_TIMEOUT_SECONDS)
{
	struct kvm_vcpu *vcpu = nx_create();
	struct prefault_stats stats;
	u64 page, round;

	if (!vcpu || !set_recovery("1", "1"))
		SKIP(return, "No NX huge pages");

	for (round = 0; round < 2000; round++) {
		page = round % NX_HUGE_NR * PREFAULT_PAGES_MAX;
		nx_run(vcpu, true, page + pvm_random(PREFAULT_PAGES_MAX), 1);
		/* The table stays, empty, until the recovery gets it. */
		prefault_unmap_guest(nx_hva + page * PAGE_SIZE, PREFAULT_PAGES_MAX * PAGE_SIZE);
	}

	/* What is left is recovered, and what comes then is huge. */
	nx_run(vcpu, true, 5, 1);
	wait_for_recovery();
	prefault_unmap_guest(nx_hva, NX_PAGES * PAGE_SIZE);
	stats = nx_run(vcpu, false, 0, NX_PAGES);
	TEST_ASSERT(stats.pf_taken == NX_HUGE_NR,
		    "%u huge pages should be mapped by as many faults, not %lu",
		    NX_HUGE_NR, stats.pf_taken);

	set_nx_huge_pages(nx_before);
	set_recovery("0", "0");
}

int main(int argc, char *argv[])
{
	TEST_REQUIRE(kvm_is_tdp_enabled());
	return test_harness_run(argc, argv);
}
