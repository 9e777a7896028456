// SPDX-License-Identifier: GPL-2.0
/*
 * The page tables of a VM have to be freed with it.
 *
 * VMs that use one page of each 2 MiB have as many last-level tables as pages.
 * The host's free memory tells whether they come back.
 */
#include <stdio.h>
#include <sys/mman.h>

#include <linux/sizes.h>

#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"
#include "ucall_common.h"

#define TEST_SLOT	10
#define TEST_GPA	SZ_4G
#define TEST_TABLES	128
#define TEST_SIZE	(TEST_TABLES * (u64)SZ_2M)

#define NR_VMS		32
#define NR_WARMUP_VMS	16

static void guest_code(u64 gva)
{
	u64 i;

	for (i = 0; i < TEST_TABLES; i++)
		READ_ONCE(*(u64 *)(gva + i * SZ_2M));

	GUEST_DONE();
}

static void run_vm(void *mem)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 i;

	vm = vm_create_with_one_vcpu(&vcpu, guest_code);
	vm_set_user_memory_region(vm, TEST_SLOT, 0, TEST_GPA, TEST_SIZE, mem);
	for (i = 0; i < TEST_TABLES; i++)
		virt_map(vm, TEST_GPA + i * SZ_2M, TEST_GPA + i * SZ_2M, 1);
	vcpu_args_set(vcpu, 1, TEST_GPA);

	vcpu_run(vcpu);
	TEST_ASSERT_EQ(get_ucall(vcpu, NULL), UCALL_DONE);

	kvm_vm_free(vm);
}

static long free_kib(void)
{
	char line[128];
	long kib = -1;
	FILE *f;

	/* What is free on the lists of single processors is not counted. */
	f = fopen("/proc/sys/vm/drop_caches", "w");
	if (f) {
		fputs("3", f);
		fclose(f);
	}

	f = fopen("/proc/meminfo", "r");
	TEST_ASSERT(f, "Cannot open /proc/meminfo");
	while (kib < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "MemFree: %ld", &kib);
	fclose(f);
	TEST_ASSERT(kib >= 0, "Cannot read the amount of free memory");

	return kib;
}

int main(void)
{
	/* What is leaked if only the last-level tables are, half of it. */
	long allowed = NR_VMS * TEST_TABLES * (getpagesize() / 1024) / 2;
	long before, after;
	void *mem;
	int i;

	/* Only read: a single page of the host is behind all of it. */
	mem = kvm_mmap(TEST_SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	TEST_ASSERT(!madvise(mem, TEST_SIZE, MADV_NOHUGEPAGE) || errno == EINVAL,
		    __KVM_SYSCALL_ERROR("madvise(MADV_NOHUGEPAGE)", -1));

	for (i = 0; i < NR_WARMUP_VMS; i++)
		run_vm(mem);
	before = free_kib();

	for (i = 0; i < NR_VMS; i++)
		run_vm(mem);
	after = free_kib();

	kvm_munmap(mem, TEST_SIZE);

	TEST_ASSERT(before - after < allowed,
		    "%ld KiB are gone after %d VMs, less than %ld KiB expected",
		    before - after, NR_VMS, allowed);
	pr_info("%ld KiB less memory is free after %d VMs\n", before - after, NR_VMS);
	return 0;
}
