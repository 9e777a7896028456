// SPDX-License-Identifier: GPL-2.0
/*
 * What the host discards has to be gone for the guest, also if the range starts
 * inside a huge page that KVM maps as one, and ends behind it.
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
#define TEST_SIZE	(2 * (u64)SZ_2M)

#define HOST_VALUE	0x686f7374ull

/* /proc/sys/kernel/tainted: the kernel has warned. */
#define TAINT_WARN	BIT(9)

/*
 * The first page of the huge one, the second, the last, and the two pages behind
 * the huge one: the range is from the second to the last but one of these.
 */
static const u64 offsets[] = {
	0, SZ_4K, SZ_2M - SZ_4K, SZ_2M, SZ_2M + SZ_4K,
};

#define DISCARD_START	SZ_4K
#define DISCARD_END	(SZ_2M + SZ_4K)

static void guest_code(u64 gva)
{
	unsigned int i;

	for (;;) {
		for (i = 0; i < ARRAY_SIZE(offsets); i++)
			GUEST_SYNC(READ_ONCE(*(u64 *)(gva + offsets[i])));
	}
}

static bool check_guest(struct kvm_vcpu *vcpu, bool discarded)
{
	struct ucall uc;
	bool ok = true;
	unsigned int i;
	u64 expected;

	for (i = 0; i < ARRAY_SIZE(offsets); i++) {
		vcpu_run(vcpu);
		TEST_ASSERT(get_ucall(vcpu, &uc) == UCALL_SYNC,
			    "The guest is to report what it sees");

		expected = HOST_VALUE + i;
		if (discarded && offsets[i] >= DISCARD_START && offsets[i] < DISCARD_END)
			expected = 0;
		if (uc.args[1] == expected)
			continue;

		pr_info("NOT OK: offset 0x%lx has 0x%lx instead of 0x%lx\n",
			offsets[i], uc.args[1], expected);
		ok = false;
	}

	return ok;
}

static unsigned long taint_flags(void)
{
	unsigned long val = 0;
	FILE *f;

	f = fopen("/proc/sys/kernel/tainted", "r");
	TEST_ASSERT(f && fscanf(f, "%lu", &val) == 1, "Cannot read the taint flags");
	fclose(f);

	return val;
}

int main(void)
{
	unsigned long taint = taint_flags() & TAINT_WARN;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	unsigned int i;
	char *mem;
	bool ok;

	TEST_REQUIRE(thp_configured());

	/* One VMA whose first half is a huge page, and whose second is not. */
	mem = kvm_mmap(TEST_SIZE + SZ_2M, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1);
	mem = align_ptr_up(mem, SZ_2M);
	TEST_ASSERT(!madvise(mem, TEST_SIZE, MADV_NOHUGEPAGE),
		    __KVM_SYSCALL_ERROR("madvise(MADV_NOHUGEPAGE)", -1));
	memset(mem + SZ_2M, 1, SZ_2M);
	TEST_ASSERT(!madvise(mem, TEST_SIZE, MADV_HUGEPAGE),
		    __KVM_SYSCALL_ERROR("madvise(MADV_HUGEPAGE)", -1));
	for (i = 0; i < ARRAY_SIZE(offsets); i++)
		*(u64 *)(mem + offsets[i]) = HOST_VALUE + i;

	vm = vm_create_with_one_vcpu(&vcpu, guest_code);
	vm_set_user_memory_region(vm, TEST_SLOT, 0, TEST_GPA, TEST_SIZE, mem);
	virt_map(vm, TEST_GPA, TEST_GPA, TEST_SIZE / vm->page_size);
	vcpu_args_set(vcpu, 1, TEST_GPA);

	TEST_ASSERT(check_guest(vcpu, false), "The guest is to see what the host wrote");
	TEST_ASSERT(!madvise(mem + DISCARD_START, DISCARD_END - DISCARD_START,
			     MADV_DONTNEED),
		    __KVM_SYSCALL_ERROR("madvise(MADV_DONTNEED)", -1));
	ok = check_guest(vcpu, true);

	kvm_vm_free(vm);

	TEST_ASSERT(ok, "The guest still sees discarded memory, see above");
	TEST_ASSERT((taint_flags() & TAINT_WARN) == taint, "The kernel has warned");
	return 0;
}
