// SPDX-License-Identifier: GPL-2.0
/*
 * What prefault has to do on riscv beyond what auto_prefault_test checks: fences,
 * the dirty log's fast path, and the errors of KVM_PRE_FAULT_MEMORY.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <linux/sizes.h>

#include "kvm_util.h"
#include "prefault_util.h"
#include "processor.h"
#include "test_util.h"
#include "ucall_common.h"

#define TEST_SLOT	10
#define TEST_SIZE	((u64)SZ_2M)
#define TEST_PAGES	(TEST_SIZE / SZ_4K)

/* Pages that are mapped in one hold of mmu_lock, hence with one fence. */
#define BATCH		64

static struct prefault_tables tables;

static void guest_code(u64 gva)
{
	u64 i;

	prefault_touch_tables(&tables);
	GUEST_SYNC(0);

	for (i = 0; i < TEST_PAGES; i++)
		READ_ONCE(*(u64 *)(gva + i * SZ_4K));
	GUEST_SYNC(1);

	for (i = 0; i < TEST_PAGES; i += 4)
		WRITE_ONCE(*(u64 *)(gva + i * SZ_4K), i);
	GUEST_SYNC(2);
}

static void run_to_sync(struct kvm_vcpu *vcpu, u64 stage)
{
	struct ucall uc;

	vcpu_run(vcpu);
	TEST_ASSERT(get_ucall(vcpu, &uc) == UCALL_SYNC && uc.args[1] == stage,
		    "The guest is to be at stage %lu", stage);
}

static struct kvm_vm *create_vm(struct kvm_vcpu **vcpu, void *mem, u32 flags)
{
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, guest_code);

	vm_set_user_memory_region(vm, TEST_SLOT, flags, PREFAULT_GPA, TEST_SIZE, mem);
	tables = prefault_virt_map(vm, PREFAULT_GPA, TEST_SIZE);
	sync_global_to_guest(vm, tables);
	vcpu_args_set(*vcpu, 1, PREFAULT_GPA);

	return vm;
}

static void check_dirty(struct kvm_vm *vm, u64 step)
{
	unsigned long log[TEST_PAGES / BITS_PER_LONG] = {};
	bool expected;
	u64 i;

	kvm_vm_get_dirty_log(vm, TEST_SLOT, log);
	for (i = 0; i < TEST_PAGES; i++) {
		expected = step && !(i % step);
		TEST_ASSERT(test_bit(i, log) == expected,
			    "Page %lu is to be %s in the dirty log", i,
			    expected ? "dirty" : "clean");
	}
}

/*
 * One fault maps all, with at most one fence for each batch and one of its own;
 * in a logged memslot each first write takes the fast path, and is logged.
 */
static void test_window(u32 flags, bool by_ioctl)
{
	u64 faults, fences, fast, max_faults = by_ioctl ? 0 : 1;
	struct kvm_pre_fault_memory range = {
		.gpa = PREFAULT_GPA,
		.size = TEST_SIZE,
	};
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	void *mem;

	mem = prefault_mmap(TEST_SIZE, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memset(mem, 1, TEST_SIZE);
	vm = create_vm(&vcpu, mem, flags);
	if (!by_ioctl)
		vm_set_prefault(vm, TEST_SIZE, KVM_AUTO_PREFAULT_FIXED);
	run_to_sync(vcpu, 0);

	faults = vcpu_get_stat(vcpu, gstage_faults);
	fences = vcpu_get_stat(vcpu, gstage_self_fences);
	fast = vcpu_get_stat(vcpu, gstage_fast_dirty);

	if (by_ioctl) {
		vcpu_ioctl(vcpu, KVM_PRE_FAULT_MEMORY, &range);
		TEST_ASSERT(!range.size, "All is to be mapped, but 0x%llx bytes are not",
			    range.size);
	}
	run_to_sync(vcpu, 1);

	faults = vcpu_get_stat(vcpu, gstage_faults) - faults;
	fences = vcpu_get_stat(vcpu, gstage_self_fences) - fences;
	TEST_ASSERT(faults <= max_faults, "%lu faults on %lu pages, at most %lu expected",
		    faults, TEST_PAGES, max_faults);
	TEST_ASSERT(fences <= TEST_PAGES / BATCH + 1,
		    "%lu fences for %lu pages", fences, TEST_PAGES);
	if (flags & KVM_MEM_LOG_DIRTY_PAGES)
		check_dirty(vm, 0);

	run_to_sync(vcpu, 2);
	fast = vcpu_get_stat(vcpu, gstage_fast_dirty) - fast;
	if (flags & KVM_MEM_LOG_DIRTY_PAGES) {
		check_dirty(vm, 4);
		TEST_ASSERT(fast == TEST_PAGES / 4,
			    "%lu writes took the fast path instead of %lu", fast,
			    TEST_PAGES / 4);
	} else {
		TEST_ASSERT(!fast, "No write is to fault");
	}

	kvm_vm_free(vm);
	kvm_munmap(mem, TEST_SIZE);
	pr_info("%s, %slogged: %lu faults, %lu fences\n", by_ioctl ? "ioctl" : "window",
		flags & KVM_MEM_LOG_DIRTY_PAGES ? "" : "not ", faults, fences);
}

static void expect(struct kvm_vcpu *vcpu, const char *what, u64 gpa, u64 size,
		   int error, u64 left)
{
	struct kvm_pre_fault_memory range = { .gpa = gpa, .size = size };
	int ret, got;

	ret = __vcpu_ioctl(vcpu, KVM_PRE_FAULT_MEMORY, &range);
	got = ret ? errno : 0;
	TEST_ASSERT(got == error, "%s: errno %d (%s) instead of %d", what, got,
		    strerror(got), error);
	TEST_ASSERT(range.size == left, "%s: 0x%llx bytes left instead of 0x%lx",
		    what, range.size, left);
}

static void ignore_signal(int sig)
{
}

static void test_errors(void)
{
	struct itimerval soon = { .it_value.tv_usec = 200000 };
	struct itimerval never = {};
	struct sigaction sa = { .sa_handler = ignore_signal };
	const u64 page = getpagesize();
	struct prefault_uffd *uffd;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 top, *word;
	void *mem;

	mem = prefault_mmap(TEST_SIZE, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	vm = create_vm(&vcpu, mem, KVM_MEM_LOG_DIRTY_PAGES);
	top = 1ull << kvm_check_cap(KVM_CAP_VM_GPA_BITS);

	expect(vcpu, "no memslot", PREFAULT_GPA - page, page, ENOENT, page);
	expect(vcpu, "above the guest's addresses", top, page, ENOENT, page);
	expect(vcpu, "end of the memslot", PREFAULT_GPA + TEST_SIZE - page,
	       2 * page, 0, page);
	expect(vcpu, "not aligned", PREFAULT_GPA + 1, page, EINVAL, page);
	expect(vcpu, "no size", PREFAULT_GPA, 0, EINVAL, 0);

	/* The zero page: mapped, not dirty, and not written by the guest. */
	expect(vcpu, "untouched memory", PREFAULT_GPA, TEST_SIZE, 0, 0);
	check_dirty(vm, 0);
	run_to_sync(vcpu, 0);
	run_to_sync(vcpu, 1);
	run_to_sync(vcpu, 2);
	check_dirty(vm, 4);
	word = kvm_mmap(page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	TEST_ASSERT(!*word, "The guest wrote to the host's zero page");
	kvm_munmap(word, page);
	kvm_vm_free(vm);

	/* What the host cannot give, behind what it can. */
	vm = create_vm(&vcpu, mem, 0);
	TEST_ASSERT(!mprotect(mem + TEST_SIZE / 2, page, PROT_NONE),
		    __KVM_SYSCALL_ERROR("mprotect()", -1));
	expect(vcpu, "up to an unreadable page", PREFAULT_GPA, TEST_SIZE, 0, TEST_SIZE / 2);
	expect(vcpu, "an unreadable page", PREFAULT_GPA + TEST_SIZE / 2, page, EFAULT, page);
	kvm_munmap(mem + TEST_SIZE / 2 + page, page);
	expect(vcpu, "no VMA", PREFAULT_GPA + TEST_SIZE / 2 + page, page, EFAULT, page);
	kvm_vm_free(vm);
	kvm_munmap(mem, TEST_SIZE);

	/* A page that never comes. */
	mem = prefault_mmap(TEST_SIZE, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	vm = create_vm(&vcpu, mem, 0);
	uffd = prefault_uffd_start(mem, TEST_SIZE, page, NULL);
	if (uffd) {
		prefault_uffd_stop(uffd);
		sigaction(SIGALRM, &sa, NULL);
		setitimer(ITIMER_REAL, &soon, NULL);
		expect(vcpu, "a signal", PREFAULT_GPA, page, EINTR, page);
		setitimer(ITIMER_REAL, &never, NULL);
		prefault_uffd_free(uffd);
	}
	kvm_vm_free(vm);
	kvm_munmap(mem, TEST_SIZE);
	pr_info("errors: ok\n");
}

int main(void)
{
	TEST_REQUIRE(kvm_check_cap(KVM_CAP_AUTO_PREFAULT));
	TEST_REQUIRE(kvm_check_cap(KVM_CAP_PRE_FAULT_MEMORY));
	TEST_REQUIRE(getpagesize() == SZ_4K);

	test_window(0, false);
	test_window(KVM_MEM_LOG_DIRTY_PAGES, false);
	test_window(0, true);
	test_window(KVM_MEM_LOG_DIRTY_PAGES, true);
	test_errors();
	return 0;
}
