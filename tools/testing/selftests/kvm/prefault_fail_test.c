// SPDX-License-Identifier: GPL-2.0-only
/*
 * Prefault when allocations fail, and when signals arrive at any time
 *
 * Each allocation that a call makes fails once, one by one (fail-nth), in a VM
 * that has no page tables yet.  A call may fail then, but nothing may be lost: it
 * tells how far it has come, goes on when it is made again, and the guest finds
 * its data.  A window needs no memory of its own, so it gives a fault no further
 * way to fail.
 *
 * Needs CONFIG_FAILSLAB and CONFIG_FAIL_PAGE_ALLOC; signals need neither.
 */
#include <pthread.h>
#include <signal.h>

#include "kvm_test_harness.h"
#include "prefault_vm.h"
#include "ucall_common.h"

#define FIXED		KVM_AUTO_PREFAULT_FIXED
#define FAIL_NTH	"/proc/thread-self/fail-nth"
#define NR_PAGES	2048
/* Pages that are touched: with 4K pages each has a table of its own. */
#define STRIDE		512
#define NR_TOUCHED	(NR_PAGES / STRIDE)
/* More allocations than any call makes. */
#define MOST		2000

static void *memory;

/* Memory whose contents outlive the host's mapping. */
static void alloc_memory(void)
{
	int fd = kvm_memfd_alloc(NR_PAGES * pvm.page_size, false);

	memory = prefault_mmap(NR_PAGES * pvm.page_size, 0, MAP_SHARED, fd);
	close(fd);
	pvm_fill(memory, 0, NR_PAGES);
}

static void create_vm(u64 window)
{
	pvm_create(1);
	pvm_set_slot(PVM_SLOT, 0, 0, NR_PAGES, memory);
	if (window)
		vm_set_prefault(pvm.vm, window, FIXED);
}

/* Also allocations that may sleep fail, of any order and from any zone. */
static bool set_up_injection(void)
{
	const char *const dirs[] = { "/sys/kernel/debug/failslab/",
				     "/sys/kernel/debug/fail_page_alloc/" };
	char path[128];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%signore-gfp-wait", dirs[i]);
		if (!prefault_write_file(path, "N"))
			return false;
	}
	return prefault_write_file("/sys/kernel/debug/fail_page_alloc/ignore-gfp-highmem", "N") &&
	       prefault_write_file("/sys/kernel/debug/fail_page_alloc/min-order", "0") &&
	       !access(FAIL_NTH, R_OK | W_OK);
}

static int fail_nth_fd;

/* The @nth allocation of this thread from now on fails; 0: none. */
static void set_fail_nth(u32 nth)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", nth);

	TEST_ASSERT(pwrite(fail_nth_fd, text, len, 0) == len,
		    __KVM_SYSCALL_ERROR("write(fail-nth)", -1));
}

/* Has an allocation failed since? */
static bool end_fail_nth(void)
{
	char text[16] = {};
	bool injected;

	TEST_ASSERT(pread(fail_nth_fd, text, sizeof(text) - 1, 0) > 0,
		    __KVM_SYSCALL_ERROR("read(fail-nth)", -1));
	injected = !atoi(text);
	set_fail_nth(0);
	return injected;
}

static bool is_expected(int error)
{
	return error == ENOMEM || error == EFAULT || error == EAGAIN || error == EINTR;
}

/* The ioctl once; returns its error, or 0. */
static int pre_fault_once(struct kvm_pre_fault_memory *range)
{
	const u64 end = range->gpa + range->size, start = range->gpa;
	int error = __vcpu_ioctl(pvm.vcpus[0], KVM_PRE_FAULT_MEMORY, range) ? errno : 0;

	TEST_ASSERT(range->gpa + range->size == end && range->gpa >= start,
		    "The rest should end at %lx, not at %llx", end, range->gpa + range->size);
	TEST_ASSERT(!error || is_expected(error), "KVM_PRE_FAULT_MEMORY fails with errno %d",
		    error);
	return error;
}

/* What is left of it, without any failure. */
static void pre_fault_rest(struct kvm_pre_fault_memory *range)
{
	int error;

	while (range->size) {
		error = pre_fault_once(range);
		TEST_ASSERT(!error || error == EAGAIN || error == EINTR,
			    "Now it should not fail, with errno %d", error);
	}
}

/* All of it is mapped, and it is the right memory. */
static void expect_all_mapped(void)
{
	pvm_expect_mapped(0, NR_PAGES);
	pvm_expect_patterns(NR_PAGES);
}

static struct kvm_pre_fault_memory all_memory(void)
{
	return (struct kvm_pre_fault_memory){
		.gpa = PREFAULT_GPA,
		.size = NR_PAGES * pvm.page_size,
	};
}

FIXTURE(prefault_fail) { int unused; };
FIXTURE_SETUP(prefault_fail)
{
	pvm_set_up();
	alloc_memory();
	if (!set_up_injection())
		SKIP(return, "This kernel does not inject failures");
	fail_nth_fd = open(FAIL_NTH, O_RDWR);
	TEST_ASSERT(fail_nth_fd >= 0, __KVM_SYSCALL_ERROR("open(fail-nth)", fail_nth_fd));
}

FIXTURE_TEARDOWN(prefault_fail) { pvm_tear_down(); }

/* Does the host's page table have the memory? */
FIXTURE_VARIANT(prefault_fail) {
	bool resident;
};

FIXTURE_VARIANT_ADD(prefault_fail, resident) { .resident = true };
FIXTURE_VARIANT_ADD(prefault_fail, unmapped) { .resident = false };

static void prepare_memory(bool resident)
{
	u64 page;

	if (!resident)
		kvm_madvise(memory, NR_PAGES * pvm.page_size, MADV_DONTNEED);
	for (page = 0; resident && page < NR_PAGES; page++)
		READ_ONCE(*pvm_word(memory, page));
}

/* Most of the first ones, then fewer: there may be many. */
static u32 next_nth(u32 nth)
{
	return nth + 1 + nth / 16;
}

TEST_F_TIMEOUT(prefault_fail, ioctl, 600)
{
	struct kvm_pre_fault_memory range;
	u32 nth, failed = 0, injected = 0;
	bool more = true;

	if (!kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY))
		SKIP(return, "No KVM_PRE_FAULT_MEMORY");

	for (nth = 1; more; nth = next_nth(nth)) {
		TEST_ASSERT(nth < MOST, "There is no end of allocations");
		create_vm(0);
		prepare_memory(variant->resident);
		range = all_memory();
		set_fail_nth(nth);
		failed += !!pre_fault_once(&range);
		more = end_fail_nth();
		injected += more;

		pre_fault_rest(&range);
		expect_all_mapped();
		pvm_tear_down();
	}
	printf("%u allocations failed, and %u calls\n", injected, failed);
	TEST_ASSERT(injected && failed, "Some call should have failed");
}

static void list_touched(void)
{
	u32 i;

	for (i = 0; i < NR_TOUCHED; i++)
		pvm.areas[0]->list[i] = i * STRIDE + 5;
	pvm.areas[0]->nr = NR_TOUCHED;
	pvm.areas[0]->op = PVM_LOAD;
}

/* Also what windows have mapped, which the list leaves out, is the right memory. */
static void expect_neighbours(void)
{
	pvm_load_range(0, NR_PAGES);
	pvm_expect_patterns(NR_PAGES);
}

/* Returns KVM_RUN's error, or 0 if the guest is through its list. */
static int finish_run(int error)
{
	struct kvm_vcpu *vcpu = pvm.vcpus[0];
	struct ucall uc;

	if (error)
		return error;
	TEST_ASSERT(get_ucall(vcpu, &uc) == UCALL_SYNC, "Unexpected exit: %s",
		    exit_reason_str(vcpu->run->exit_reason));
	return 0;
}

static int run_once(void)
{
	return finish_run(__vcpu_run(pvm.vcpus[0]) ? errno : 0);
}

/*
 * The guest's faults, with each allocation failing once.  Returns how many calls
 * of KVM_RUN have failed.
 */
static u32 fail_faults(u64 window, bool resident)
{
	u32 nth, failed = 0, injected = 0;
	bool more = true;
	int error;

	for (nth = 1; more; nth = next_nth(nth)) {
		TEST_ASSERT(nth < MOST, "There is no end of allocations");
		/* It has not run yet: its caches are empty. */
		create_vm(window);
		prepare_memory(resident);
		list_touched();
		set_fail_nth(nth);
		error = __vcpu_run(pvm.vcpus[0]) ? errno : 0;
		more = end_fail_nth();
		injected += more;

		finish_run(error);
		TEST_ASSERT(!error || is_expected(error), "KVM_RUN fails with errno %d", error);
		if (error) {
			failed++;
			error = run_once();
			TEST_ASSERT(!error, "Now KVM_RUN should not fail, with errno %d", error);
		}
		pvm_expect_patterns(NR_TOUCHED);
		if (window && resident)
			expect_neighbours();
		pvm_tear_down();
	}
	printf("window %lu: %u allocations failed, and %u calls\n", window, injected, failed);
	return failed;
}

TEST_F_TIMEOUT(prefault_fail, fault, 600)
{
	u32 without = fail_faults(0, variant->resident);
	u32 with = fail_faults(pvm.full_size, variant->resident);

	TEST_ASSERT(without, "Some call should have failed");
	TEST_ASSERT(with <= without,
		    "With a window %u calls of KVM_RUN fail, without one %u", with, without);
}

/*
 * Signals.
 */

static struct {
	pthread_t target;
	pthread_t thread;
	bool stop;
} signals;

static void do_nothing(int sig)
{
}

static void *signal_thread(void *unused)
{
	struct kvm_random_state rng = new_kvm_random_state(kvm_random_seed % 1000000 + 1);

	while (!READ_ONCE(signals.stop)) {
		pthread_kill(signals.target, SIGUSR1);
		usleep(kvm_random_u32(&rng) % 10000);
	}
	return NULL;
}

static void start_signals(void)
{
	const struct sigaction action = { .sa_handler = do_nothing };

	sigaction(SIGUSR1, &action, NULL);
	signals.target = pthread_self();
	signals.stop = false;
	kvm_pthread_create(&signals.thread, NULL, signal_thread, NULL);
}

static void stop_signals(void)
{
	WRITE_ONCE(signals.stop, true);
	kvm_pthread_join(signals.thread, NULL);
}

FIXTURE(prefault_signal) { int unused; };
FIXTURE_SETUP(prefault_signal)
{
	pvm_set_up();
	alloc_memory();
}

FIXTURE_TEARDOWN(prefault_signal) { pvm_tear_down(); }

/* At least; more until a signal has come at the right time. */
#define ROUNDS	300

TEST_F_TIMEOUT(prefault_signal, ioctl, PVM_TIMEOUT_SECONDS)
{
	struct kvm_pre_fault_memory range;
	u32 round, short_calls = 0;

	if (!kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY))
		SKIP(return, "No KVM_PRE_FAULT_MEMORY");

	create_vm(0);
	start_signals();
	for (round = 0; round < ROUNDS || round % 2 || !short_calls; round++) {
		/* In the last round it is not: all has to be faulted in. */
		prepare_memory(round % 2 == 0);
		prefault_unmap_guest(memory, NR_PAGES * pvm.page_size);
		range = all_memory();
		pre_fault_once(&range);
		short_calls += !!range.size;
		pre_fault_rest(&range);
	}
	stop_signals();
	expect_all_mapped();
}

TEST_F_TIMEOUT(prefault_signal, fault, PVM_TIMEOUT_SECONDS)
{
	u32 round, interrupted = 0;
	int error;

	create_vm(pvm.full_size);
	pvm_run(0, PVM_WARM_UP);
	start_signals();
	for (round = 0; round < ROUNDS || round % 2 || !interrupted; round++) {
		/* In the last round it is: its windows have mapped neighbours. */
		prepare_memory(round % 2);
		prefault_unmap_guest(memory, NR_PAGES * pvm.page_size);
		list_touched();
		memset(pvm.areas[0]->values, 0, sizeof(pvm.areas[0]->values));
		while ((error = run_once())) {
			TEST_ASSERT(error == EINTR, "KVM_RUN fails with errno %d", error);
			interrupted++;
		}
		pvm_expect_patterns(NR_TOUCHED);
	}
	stop_signals();
	expect_neighbours();
}

int main(int argc, char *argv[])
{
	pvm_require();
	return test_harness_run(argc, argv);
}
