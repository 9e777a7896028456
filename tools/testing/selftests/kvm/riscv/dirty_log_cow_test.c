// SPDX-License-Identifier: GPL-2.0
/*
 * A guest write to a page that the host maps read-only has to break
 * copy-on-write, also in a memslot whose dirty pages are logged, where a write
 * fault is usually resolved by giving write permission back.
 *
 * In each case the guest reads a page that the host shares with somebody else,
 * then writes it.  The write must not be seen by the other party, the witness.
 * In the last case there is no sharing, but the page is clean when the guest
 * writes it: what it wrote must survive that the host reclaims the page.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/sizes.h>

#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"
#include "ucall_common.h"

#define TEST_SLOT	10
#define TEST_GPA	SZ_4G

/* Not the first word of the page, which a lost zero page would hurt most. */
#define TEST_OFFSET	0x7f8

#define GUEST_VALUE	0x6775657374ull
#define HOST_VALUE	0x686f7374ull

#define KSM_DIR		"/sys/kernel/mm/ksm/"
#define KSM_WAIT_S	20

struct cow_case {
	const char *name;
	u64 initial;
	/* Makes the page that the guest gets, NULL if the host cannot. */
	void *(*setup)(void);
	/* What the other party sees now. */
	u64 (*witness)(void);
	void (*teardown)(void *page);
};

static u64 *word(void *page)
{
	return page + TEST_OFFSET;
}

static u64 read_word(void *page)
{
	return READ_ONCE(*word(page));
}

static void *map_anon(void)
{
	return kvm_mmap(getpagesize(), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static void unmap_page(void *page)
{
	kvm_munmap(page, getpagesize());
}

/* The zero page: everybody who reads fresh memory is a witness. */
static u64 zero_witness(void)
{
	void *page = map_anon();
	u64 val = read_word(page);

	unmap_page(page);
	return val;
}

/* A private mapping of a file: whoever reads the file is a witness. */
static int file_fd;

static void *file_setup(void)
{
	u64 val = HOST_VALUE;

	file_fd = kvm_memfd_alloc(getpagesize(), false);
	TEST_ASSERT(pwrite(file_fd, &val, sizeof(val), TEST_OFFSET) == sizeof(val),
		    __KVM_SYSCALL_ERROR("pwrite()", -1));

	return kvm_mmap(getpagesize(), PROT_READ | PROT_WRITE, MAP_PRIVATE, file_fd);
}

static u64 file_witness(void)
{
	u64 val;

	TEST_ASSERT(pread(file_fd, &val, sizeof(val), TEST_OFFSET) == sizeof(val),
		    __KVM_SYSCALL_ERROR("pread()", -1));
	return val;
}

static void file_teardown(void *page)
{
	unmap_page(page);
	kvm_close(file_fd);
}

/* Anonymous memory after fork(): the child is a witness. */
static int to_child[2], from_child[2];

static void *fork_setup(void)
{
	void *page = map_anon();
	char cmd;
	u64 val;

	WRITE_ONCE(*word(page), HOST_VALUE);
	TEST_ASSERT(!pipe(to_child) && !pipe(from_child),
		    __KVM_SYSCALL_ERROR("pipe()", -1));

	switch (fork()) {
	case -1:
		TEST_FAIL(__KVM_SYSCALL_ERROR("fork()", -1));
	case 0:
		close(to_child[1]);
		while (read(to_child[0], &cmd, 1) == 1) {
			val = read_word(page);
			if (write(from_child[1], &val, sizeof(val)) != sizeof(val))
				_exit(1);
		}
		_exit(0);
	}
	kvm_close(to_child[0]);

	return page;
}

static u64 fork_witness(void)
{
	u64 val;

	TEST_ASSERT(write(to_child[1], "?", 1) == 1 &&
		    read(from_child[0], &val, sizeof(val)) == sizeof(val),
		    "The child is to tell what it sees");
	return val;
}

static void fork_teardown(void *page)
{
	kvm_close(to_child[1]);
	wait(NULL);
	kvm_close(from_child[0]);
	kvm_close(from_child[1]);
	unmap_page(page);
}

/* Two pages that KSM merged: the owner of the other one is a witness. */
static void *ksm_other;

static bool ksm_write(const char *name, int val)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), KSM_DIR "%s", name);
	f = fopen(path, "w");
	if (!f)
		return false;
	fprintf(f, "%d\n", val);
	return !fclose(f);
}

static long ksm_read(const char *name)
{
	char path[64];
	long val = 0;
	FILE *f;

	snprintf(path, sizeof(path), KSM_DIR "%s", name);
	f = fopen(path, "r");
	TEST_ASSERT(f && fscanf(f, "%ld", &val) == 1, "Cannot read %s", path);
	fclose(f);
	return val;
}

static void *ksm_setup(void)
{
	void *page;
	int i;

	if (!ksm_write("pages_to_scan", 1000) || !ksm_write("sleep_millisecs", 10))
		return NULL;

	page = map_anon();
	ksm_other = map_anon();
	WRITE_ONCE(*word(page), HOST_VALUE);
	WRITE_ONCE(*word(ksm_other), HOST_VALUE);
	if (madvise(page, getpagesize(), MADV_MERGEABLE) ||
	    madvise(ksm_other, getpagesize(), MADV_MERGEABLE))
		return NULL;

	ksm_write("run", 1);
	for (i = 0; i < KSM_WAIT_S * 100 && !ksm_read("pages_sharing"); i++)
		usleep(10000);
	TEST_ASSERT(ksm_read("pages_sharing"), "KSM is to merge two equal pages");
	ksm_write("run", 0);

	return page;
}

static u64 ksm_witness(void)
{
	return read_word(ksm_other);
}

static void ksm_teardown(void *page)
{
	unmap_page(page);
	unmap_page(ksm_other);
}

static struct cow_case cases[] = {
	{ "zero page", 0, map_anon, zero_witness, unmap_page },
	{ "private file", HOST_VALUE, file_setup, file_witness, file_teardown },
	{ "fork", HOST_VALUE, fork_setup, fork_witness, fork_teardown },
	{ "KSM", HOST_VALUE, ksm_setup, ksm_witness, ksm_teardown },
};

static void guest_code(u64 gva)
{
	u64 *p = (u64 *)(gva + TEST_OFFSET);
	u64 initial = READ_ONCE(*p);

	GUEST_SYNC(initial);
	WRITE_ONCE(*p, GUEST_VALUE);
	GUEST_SYNC(READ_ONCE(*p));
	/* Repair what is broken if the write went to a shared page. */
	WRITE_ONCE(*p, initial);
	GUEST_DONE();
}

static void run_to_sync(struct kvm_vcpu *vcpu, u64 expected)
{
	struct ucall uc;

	vcpu_run(vcpu);
	TEST_ASSERT(get_ucall(vcpu, &uc) == UCALL_SYNC,
		    "The guest is to report what it sees");
	TEST_ASSERT(uc.args[1] == expected,
		    "The guest sees 0x%lx instead of 0x%lx", uc.args[1], expected);
}

static struct kvm_vm *create_vm(struct kvm_vcpu **vcpu, void *page)
{
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, guest_code);

	vm_set_user_memory_region(vm, TEST_SLOT, KVM_MEM_LOG_DIRTY_PAGES,
				  TEST_GPA, getpagesize(), page);
	virt_map(vm, TEST_GPA, TEST_GPA, 1);
	vcpu_args_set(*vcpu, 1, TEST_GPA);

	return vm;
}

static bool is_dirty(struct kvm_vm *vm)
{
	u64 log = 0;

	kvm_vm_get_dirty_log(vm, TEST_SLOT, &log);
	return log;
}

static bool run_cow_case(struct cow_case *c)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 before, after;
	void *page;

	page = c->setup();
	if (!page) {
		pr_info("%s: skipped, the host has no support for it\n", c->name);
		return true;
	}
	vm = create_vm(&vcpu, page);

	run_to_sync(vcpu, c->initial);
	TEST_ASSERT(!is_dirty(vm), "%s: a read must not make a page dirty", c->name);
	before = c->witness();

	run_to_sync(vcpu, GUEST_VALUE);
	after = c->witness();
	TEST_ASSERT(is_dirty(vm), "%s: a write must make a page dirty", c->name);

	vcpu_run(vcpu);
	kvm_vm_free(vm);
	c->teardown(page);

	pr_info("%s: %s\n", c->name, before == after ? "ok" :
		"NOT OK, the guest's write is seen by others");
	return before == after;
}

/* A hole of a file that is mapped shared: clean memory that may be written. */
static bool run_reclaim_case(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	void *page;
	u64 val;
	int fd;

	fd = kvm_memfd_alloc(getpagesize(), false);
	page = kvm_mmap(getpagesize(), PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	vm = create_vm(&vcpu, page);

	run_to_sync(vcpu, 0);
	run_to_sync(vcpu, GUEST_VALUE);
	TEST_ASSERT(!madvise(page, getpagesize(), MADV_PAGEOUT),
		    __KVM_SYSCALL_ERROR("madvise(MADV_PAGEOUT)", -1));
	val = read_word(page);

	kvm_vm_free(vm);
	unmap_page(page);
	kvm_close(fd);

	pr_info("reclaim: %s\n", val == GUEST_VALUE ? "ok" :
		"NOT OK, the guest's write is lost");
	return val == GUEST_VALUE;
}

int main(void)
{
	unsigned int i;
	bool ok = true;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		ok &= run_cow_case(&cases[i]);
	ok &= run_reclaim_case();

	TEST_ASSERT(ok, "Guest writes went to the wrong page or were lost, see above");
	return 0;
}
