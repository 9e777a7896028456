// SPDX-License-Identifier: GPL-2.0
/*
 * A huge page of the host is in use if the guest uses any part of it.
 *
 * In a memslot whose dirty pages are logged KVM maps a huge page of the host as
 * small ones.  Idle page tracking asks for the huge page as a whole, and has to
 * hear of an access to any of the small ones.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/sizes.h>

#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"
#include "ucall_common.h"

#define TEST_SLOT	10
#define TEST_GPA	SZ_4G
#define TEST_SIZE	SZ_2M

#define IDLE_BITMAP	"/sys/kernel/mm/page_idle/bitmap"

static const u64 offsets[] = { 0, SZ_4K, 5 * SZ_4K, SZ_1M, SZ_2M - SZ_4K };

static void guest_code(u64 gva)
{
	unsigned int i;

	for (i = 0; ; i = (i + 1) % ARRAY_SIZE(offsets)) {
		READ_ONCE(*(u64 *)(gva + offsets[i]));
		GUEST_SYNC(offsets[i]);
		/* Again, after the page has been made idle. */
		READ_ONCE(*(u64 *)(gva + offsets[i]));
		GUEST_SYNC(offsets[i]);
	}
}

static void run_guest(struct kvm_vcpu *vcpu)
{
	vcpu_run(vcpu);
	TEST_ASSERT_EQ(get_ucall(vcpu, NULL), UCALL_SYNC);
}

static u64 pfn_of(void *mem)
{
	off_t offset = (uintptr_t)mem / getpagesize() * sizeof(u64);
	u64 entry;
	int fd;

	fd = open("/proc/self/pagemap", O_RDONLY);
	TEST_ASSERT(fd >= 0 && pread(fd, &entry, sizeof(entry), offset) == sizeof(entry),
		    "Cannot read pagemap");
	kvm_close(fd);

	return entry & GENMASK(54, 0);
}

static void set_idle(int fd, u64 pfn)
{
	u64 bits = BIT_ULL(pfn % 64);

	TEST_ASSERT(pwrite(fd, &bits, sizeof(bits), pfn / 64 * sizeof(bits)) == sizeof(bits),
		    __KVM_SYSCALL_ERROR("pwrite()", -1));
}

static bool is_idle(int fd, u64 pfn)
{
	u64 bits;

	TEST_ASSERT(pread(fd, &bits, sizeof(bits), pfn / 64 * sizeof(bits)) == sizeof(bits),
		    __KVM_SYSCALL_ERROR("pread()", -1));
	return bits & BIT_ULL(pfn % 64);
}

int main(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	unsigned int i;
	bool ok = true;
	char *mem;
	u64 pfn;
	int fd;

	TEST_REQUIRE(thp_configured());
	fd = open(IDLE_BITMAP, O_RDWR);
	__TEST_REQUIRE(fd >= 0, "No idle page tracking");

	mem = kvm_mmap(2 * TEST_SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1);
	mem = align_ptr_up(mem, TEST_SIZE);
	TEST_ASSERT(!madvise(mem, TEST_SIZE, MADV_HUGEPAGE),
		    __KVM_SYSCALL_ERROR("madvise(MADV_HUGEPAGE)", -1));
	memset(mem, 1, TEST_SIZE);
	pfn = pfn_of(mem);
	TEST_REQUIRE(pfn && !(pfn % (TEST_SIZE / getpagesize())));

	vm = vm_create_with_one_vcpu(&vcpu, guest_code);
	vm_set_user_memory_region(vm, TEST_SLOT, KVM_MEM_LOG_DIRTY_PAGES,
				  TEST_GPA, TEST_SIZE, mem);
	virt_map(vm, TEST_GPA, TEST_GPA, TEST_SIZE / vm->page_size);
	vcpu_args_set(vcpu, 1, TEST_GPA);

	for (i = 0; i < ARRAY_SIZE(offsets); i++) {
		run_guest(vcpu);
		set_idle(fd, pfn);
		if (!is_idle(fd, pfn)) {
			pr_info("NOT OK: the page is not idle, though nobody used it\n");
			ok = false;
		}

		run_guest(vcpu);
		if (is_idle(fd, pfn)) {
			pr_info("NOT OK: the page is idle, though offset 0x%lx is used\n",
				offsets[i]);
			ok = false;
		}
	}

	kvm_vm_free(vm);
	kvm_close(fd);

	TEST_ASSERT(ok, "Accesses were not seen, see above");
	return 0;
}
