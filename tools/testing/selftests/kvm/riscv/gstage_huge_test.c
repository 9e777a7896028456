// SPDX-License-Identifier: GPL-2.0
/*
 * Huge pages of the host where KVM has a table of small pages.
 *
 * A table that still maps something has to stay, and the page that faulted has
 * to be mapped in it.  A table that maps nothing any more makes room for a huge
 * page, and has to be freed.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/sizes.h>

#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"
#include "ucall_common.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

#define TEST_SLOT	10
#define TEST_GPA	SZ_4G
#define HUGE_PAGES	16
#define TEST_SIZE	(HUGE_PAGES * (u64)SZ_2M)

#define ROUNDS		64
#define ATTEMPTS	4
#define TIMEOUT_S	60

/* Writes one page of each huge page, a different one each time. */
static void guest_code(u64 gva, u64 size)
{
	u64 huge, round;

	for (round = 0; ; round++) {
		for (huge = 0; huge < size; huge += SZ_2M)
			WRITE_ONCE(*(u64 *)(gva + huge + (round * 7 % 512) * SZ_4K), round);
		GUEST_SYNC(round);
	}
}

static void run_round(struct kvm_vcpu *vcpu)
{
	vcpu_run(vcpu);
	TEST_ASSERT_EQ(get_ucall(vcpu, NULL), UCALL_SYNC);
}

static void advise(void *mem, int advice, const char *name)
{
	TEST_ASSERT(!madvise(mem, TEST_SIZE, advice), "madvise(%s) failed: %s",
		    name, strerror(errno));
}

static struct kvm_vm *create_vm(struct kvm_vcpu **vcpu, void *mem, u32 flags)
{
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, guest_code);

	vm_set_user_memory_region(vm, TEST_SLOT, flags, TEST_GPA, TEST_SIZE, mem);
	virt_map(vm, TEST_GPA, TEST_GPA, TEST_SIZE / vm->page_size);
	vcpu_args_set(*vcpu, 2, TEST_GPA, TEST_SIZE);

	return vm;
}

static void timeout(int sig)
{
	static const char msg[] = "NOT OK: the guest makes no progress\n";

	if (write(STDERR_FILENO, msg, sizeof(msg) - 1) < 0)
		_exit(2);
	_exit(1);
}

/* Logging makes small pages of a huge one; they stay when it is over. */
static void test_stop_logging(void *mem)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int i;

	advise(mem, MADV_HUGEPAGE, "MADV_HUGEPAGE");
	memset(mem, 1, TEST_SIZE);

	vm = create_vm(&vcpu, mem, 0);
	run_round(vcpu);
	vm_set_user_memory_region(vm, TEST_SLOT, KVM_MEM_LOG_DIRTY_PAGES,
				  TEST_GPA, TEST_SIZE, mem);
	run_round(vcpu);
	vm_set_user_memory_region(vm, TEST_SLOT, 0, TEST_GPA, TEST_SIZE, mem);

	alarm(TIMEOUT_S);
	for (i = 0; i < 4; i++)
		run_round(vcpu);
	alarm(0);

	kvm_vm_free(vm);
	pr_info("logging stopped: ok\n");
}

static long free_kib(void)
{
	char line[128];
	long kib = -1;
	FILE *f;

	f = fopen("/proc/meminfo", "r");
	TEST_ASSERT(f, "Cannot open /proc/meminfo");
	while (kib < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "MemFree: %ld", &kib);
	fclose(f);
	TEST_ASSERT(kib >= 0, "Cannot read the amount of free memory");

	return kib;
}

static void collapse_round(struct kvm_vcpu *vcpu, void *mem)
{
	/* Small pages, and a table for them. */
	advise(mem, MADV_NOHUGEPAGE, "MADV_NOHUGEPAGE");
	advise(mem, MADV_DONTNEED, "MADV_DONTNEED");
	run_round(vcpu);

	/* Huge pages, and none of the small ones is left. */
	advise(mem, MADV_HUGEPAGE, "MADV_HUGEPAGE");
	advise(mem, MADV_COLLAPSE, "MADV_COLLAPSE");
	run_round(vcpu);
}

static long collapse_loses(struct kvm_vcpu *vcpu, void *mem)
{
	long before = free_kib();
	int i;

	for (i = 0; i < ROUNDS; i++)
		collapse_round(vcpu, mem);

	return before - free_kib();
}

static void test_collapse(void *mem)
{
	/* One table is lost per huge page and round, allow a quarter. */
	long allowed = ROUNDS * HUGE_PAGES * (getpagesize() / 1024) / 4;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	long lost = allowed;
	int i;

	vm = create_vm(&vcpu, mem, 0);
	for (i = 0; i < 4; i++)
		collapse_round(vcpu, mem);

	/* The host needs memory for itself as well, but not every time. */
	for (i = 0; i < ATTEMPTS && lost >= allowed; i++)
		lost = collapse_loses(vcpu, mem);

	kvm_vm_free(vm);

	TEST_ASSERT(lost < allowed, "%ld KiB are gone, less than %ld KiB expected",
		    lost, allowed);
	pr_info("collapse: ok, %ld KiB less memory is free\n", lost);
}

int main(void)
{
	char *mem;

	TEST_REQUIRE(thp_configured());

	signal(SIGALRM, timeout);
	mem = kvm_mmap(TEST_SIZE + SZ_2M, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1);
	mem = align_ptr_up(mem, SZ_2M);

	test_stop_logging(mem);
	test_collapse(mem);
	return 0;
}
