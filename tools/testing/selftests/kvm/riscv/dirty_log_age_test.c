// SPDX-License-Identifier: GPL-2.0
/*
 * A guest write to a page that was written before and has become old since.
 *
 * Where hardware traps on a clear accessed bit (Svade), this is a write fault on
 * a page that is writable.  With dirty logging it has to be resolved as well.
 */
#include <fcntl.h>
#include <signal.h>
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

#define IDLE_BITMAP	"/sys/kernel/mm/page_idle/bitmap"
#define TIMEOUT_S	30
#define ROUNDS		8

static void guest_code(u64 gva)
{
	u64 round;

	for (round = 1; ; round++) {
		WRITE_ONCE(*(u64 *)gva, round);
		GUEST_SYNC(round);
	}
}

static void timeout(int sig)
{
	static const char msg[] = "NOT OK: the guest's write makes no progress\n";

	if (write(STDERR_FILENO, msg, sizeof(msg) - 1) < 0)
		_exit(2);
	_exit(1);
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

int main(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 *mem, pfn, bits;
	off_t offset;
	int fd, i;

	fd = open(IDLE_BITMAP, O_RDWR);
	__TEST_REQUIRE(fd >= 0, "No idle page tracking");

	mem = kvm_mmap(getpagesize(), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1);
	*mem = 0;
	pfn = pfn_of(mem);
	TEST_REQUIRE(pfn);

	vm = vm_create_with_one_vcpu(&vcpu, guest_code);
	vm_set_user_memory_region(vm, TEST_SLOT, KVM_MEM_LOG_DIRTY_PAGES,
				  TEST_GPA, getpagesize(), mem);
	virt_map(vm, TEST_GPA, TEST_GPA, 1);
	vcpu_args_set(vcpu, 1, TEST_GPA);

	signal(SIGALRM, timeout);
	alarm(TIMEOUT_S);

	for (i = 1; i <= ROUNDS; i++) {
		vcpu_run(vcpu);
		TEST_ASSERT_EQ(get_ucall(vcpu, NULL), UCALL_SYNC);
		TEST_ASSERT_EQ(READ_ONCE(*mem), i);

		/* Pages wait for a while before they take part. */
		if (i == 1)
			sleep(1);
		bits = BIT_ULL(pfn % 64);
		offset = pfn / 64 * sizeof(bits);
		TEST_ASSERT(pwrite(fd, &bits, sizeof(bits), offset) == sizeof(bits),
			    __KVM_SYSCALL_ERROR("pwrite()", -1));
	}

	alarm(0);
	kvm_vm_free(vm);
	kvm_close(fd);
	return 0;
}
