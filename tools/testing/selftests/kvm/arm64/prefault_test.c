// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is peculiar to arm64 in KVM_CAP_AUTO_PREFAULT and KVM_PRE_FAULT_MEMORY:
 * the access flag, execution, tags, and the errors of the ioctl.
 *
 * Which of these shows what depends on the processor: run it with and without
 * CTR_EL0.DIC, hardware access flag and MTE, and with kvm-arm.mode=protected,
 * where everything has to be refused.
 */
#include <fcntl.h>
#include <linux/bitfield.h>
#include <linux/bitmap.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/mman.h>

#include <asm/sysreg.h>

#include "kvm_util.h"
#include "prefault_util.h"
#include "processor.h"
#include "test_util.h"
#include "ucall.h"

#define SLOT		10
#define MMIO_GPA	0xff0000000ull
#define RET_INSN	0xd65f03c0	/* ret x30 */
#define KPF_MTE_TAGGED	BIT_ULL(41)	/* KPF_ARCH_2 of /proc/kpageflags */

static u64 page_size;

/* One window of anonymous memory, resident, that the guest has not touched. */
struct area {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	void *hva;
	u64 size;
	u64 npages;
};

static struct prefault_tables guest_tables;
static u64 guest_page_size;

enum touch {
	TOUCH_READ,
	TOUCH_WRITE,
	TOUCH_EXEC,
};

static noinline void guest_touch(gva_t gva, enum touch touch)
{
	switch (touch) {
	case TOUCH_READ:
		READ_ONCE(*(u64 *)gva);
		break;
	case TOUCH_WRITE:
		WRITE_ONCE(*(u64 *)gva, 1);
		break;
	case TOUCH_EXEC:
		((void (*)(void))gva)();
		break;
	}
}

/* Each sync hands over what to do next: pages [first, end), and how. */
static u64 todo_first, todo_end;
static enum touch todo_touch;

static void guest_code(void)
{
	u64 i;

	prefault_touch_tables(&guest_tables);

	for (;;) {
		GUEST_SYNC(0);
		for (i = todo_first; i < todo_end; i++)
			guest_touch(PREFAULT_GPA + i * guest_page_size, todo_touch);
	}
}

static void run_to_sync(struct kvm_vcpu *vcpu)
{
	struct ucall uc;

	vcpu_run(vcpu);
	TEST_ASSERT(get_ucall(vcpu, &uc) == UCALL_SYNC,
		    "Expected a sync, exit reason %u (%s), ucall %lu",
		    vcpu->run->exit_reason,
		    exit_reason_str(vcpu->run->exit_reason), uc.cmd);
}

static void prepare_touch(struct area *a, u64 first, u64 end, enum touch touch)
{
	todo_first = first;
	todo_end = end;
	todo_touch = touch;
	sync_global_to_guest(a->vm, todo_first);
	sync_global_to_guest(a->vm, todo_end);
	sync_global_to_guest(a->vm, todo_touch);
}

static void touch(struct area *a, u64 first, u64 end, enum touch touch)
{
	prepare_touch(a, first, end, touch);
	run_to_sync(a->vcpu);
}

/*
 * The guest's globals are read before anything is counted, and its page tables
 * are read from then on without a fault.
 */
static void area_add_slot(struct area *a, u32 flags)
{
	vm_set_user_memory_region(a->vm, SLOT, flags, PREFAULT_GPA, a->size, a->hva);
	guest_tables = prefault_virt_map(a->vm, PREFAULT_GPA, a->size);
	guest_page_size = page_size;
	sync_global_to_guest(a->vm, guest_tables);
	sync_global_to_guest(a->vm, guest_page_size);
	run_to_sync(a->vcpu);
	touch(a, 0, 0, TOUCH_READ);
}

static void area_mmap(struct area *a)
{
	a->npages = PREFAULT_PAGES_MAX;
	a->size = a->npages * page_size;
	a->hva = prefault_mmap(a->size, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memset(a->hva, 0, a->size);
}

static struct area area_create(u32 flags)
{
	struct area a;

	a.vm = vm_create_with_one_vcpu(&a.vcpu, guest_code);
	area_mmap(&a);
	area_add_slot(&a, flags);
	return a;
}

static void area_free(struct area *a)
{
	kvm_vm_free(a->vm);
	munmap(a->hva, a->size);
}

static void set_window(struct area *a)
{
	vm_set_prefault(a->vm, a->size, KVM_AUTO_PREFAULT_FIXED);
}

struct faults {
	u64 translation, permission, access_flag;
};

static struct faults read_faults(struct kvm_vcpu *vcpu)
{
	return (struct faults) {
		.translation	= vcpu_get_stat(vcpu, stage2_translation_faults),
		.permission	= vcpu_get_stat(vcpu, stage2_permission_faults),
		.access_flag	= vcpu_get_stat(vcpu, stage2_access_flag_faults),
	};
}

static void expect_faults(struct area *a, struct faults before, const char *what,
			  u64 translation, u64 permission)
{
	struct faults after = read_faults(a->vcpu);

	TEST_ASSERT(after.translation - before.translation == translation &&
		    after.permission - before.permission == permission &&
		    after.access_flag == before.access_flag,
		    "%s: expected %lu translation, %lu permission, 0 access flag faults, got %lu, %lu, %lu",
		    what, translation, permission,
		    after.translation - before.translation,
		    after.permission - before.permission,
		    after.access_flag - before.access_flag);
}

static bool has_dic(void)
{
	return FIELD_GET(CTR_EL0_DIC_MASK, read_sysreg(ctr_el0));
}

/*
 * With hardware management of the access flag, prefaulted entries are old;
 * without, they have to be young.  In neither case does the first touch exit.
 */
static void test_access_flag(void)
{
	struct area a = area_create(0);
	struct faults before;

	set_window(&a);
	before = read_faults(a.vcpu);
	touch(&a, 7, 8, TOUCH_READ);
	touch(&a, 0, a.npages, TOUCH_READ);
	touch(&a, 0, a.npages, TOUCH_WRITE);
	expect_faults(&a, before, "Touching a prefaulted window", 1, 0);

	area_free(&a);
}

/*
 * Prefault never invalidates the instruction cache.  Where that is needed, the
 * first fetch from a page takes a permission fault, which does.
 */
static void test_exec(void)
{
	u64 i, npages = 16, faults = has_dic() ? 0 : npages;
	struct area a = area_create(0);
	struct faults before;

	for (i = 0; i < a.npages; i++) {
		*(u32 *)(a.hva + i * page_size) = RET_INSN;
		__builtin___clear_cache(a.hva + i * page_size,
					a.hva + i * page_size + 4);
	}

	set_window(&a);
	before = read_faults(a.vcpu);
	touch(&a, npages, npages + 1, TOUCH_READ);
	touch(&a, 0, npages, TOUCH_EXEC);
	touch(&a, 0, npages, TOUCH_EXEC);
	expect_faults(&a, before, "Executing prefaulted pages", 1, faults);

	/* A fetch is a fault like any other. */
	prefault_unmap_guest(a.hva, a.size);
	before = read_faults(a.vcpu);
	touch(&a, 3, 4, TOUCH_EXEC);
	touch(&a, 0, a.npages, TOUCH_READ);
	expect_faults(&a, before, "Reading around a fetch", 1, 0);

	area_free(&a);
}

/*
 * In a memslot whose dirty pages are tracked, each page takes a permission
 * fault for its first write, and only what was written is dirty.
 */
static void test_logged(void)
{
	struct area a = area_create(KVM_MEM_LOG_DIRTY_PAGES);
	u64 i, nr_dirty = 0, written = 9;
	unsigned long *bmap = bitmap_zalloc(a.npages);
	struct faults before;

	set_window(&a);
	before = read_faults(a.vcpu);
	touch(&a, 0, 1, TOUCH_READ);
	touch(&a, 0, a.npages, TOUCH_READ);
	touch(&a, 1, 1 + written, TOUCH_WRITE);
	expect_faults(&a, before, "Writing to prefaulted, logged pages", 1, written);

	kvm_vm_get_dirty_log(a.vm, SLOT, bmap);
	for (i = 0; i < a.npages; i++)
		nr_dirty += test_bit(i, bmap);
	TEST_ASSERT(nr_dirty == written && test_bit(1, bmap) && test_bit(written, bmap),
		    "Expected the %lu written pages to be dirty, not %lu pages",
		    written, nr_dirty);

	free(bmap);
	area_free(&a);
}

/* A write to a prefaulted page of a read-only memslot is MMIO. */
static void test_readonly(void)
{
	struct area a = area_create(KVM_MEM_READONLY);
	struct kvm_run *run = a.vcpu->run;
	struct faults before;

	set_window(&a);
	before = read_faults(a.vcpu);
	touch(&a, 5, 6, TOUCH_READ);
	touch(&a, 0, a.npages, TOUCH_READ);
	expect_faults(&a, before, "Reading a read-only memslot", 1, 0);

	prepare_touch(&a, 8, 9, TOUCH_WRITE);
	vcpu_run(a.vcpu);
	TEST_ASSERT(run->exit_reason == KVM_EXIT_MMIO && run->mmio.is_write &&
		    run->mmio.phys_addr == PREFAULT_GPA + 8 * page_size,
		    "Expected a write to page 8 as MMIO, exit reason %u (%s)",
		    run->exit_reason, exit_reason_str(run->exit_reason));
	run_to_sync(a.vcpu);

	area_free(&a);
}

static void *replace_half(struct area *a, int prot, int flags, int fd)
{
	u64 half = a->size / 2;
	void *hva = mmap(a->hva + half, half, prot, flags | MAP_FIXED, fd, 0);

	TEST_ASSERT(hva != MAP_FAILED, __KVM_SYSCALL_ERROR("mmap()", -1));
	return hva;
}

/* A window ends where the VMA of its fault does. */
static void test_vma_edge(void)
{
	struct area a = area_create(0);
	struct prefault_stats before = {}, after = {};
	int fd = open("/dev/zero", O_RDWR);
	void *hva;

	TEST_ASSERT(fd >= 0, __KVM_SYSCALL_ERROR("open(/dev/zero)", fd));
	hva = replace_half(&a, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	memset(hva, 1, a.size / 2);

	set_window(&a);
	prefault_read_stats(a.vcpu, &before);
	touch(&a, 0, 1, TOUCH_READ);
	prefault_read_stats(a.vcpu, &after);
	TEST_ASSERT(after.mapped - before.mapped == a.npages / 2 - 1,
		    "Expected %lu pages of the VMA to be mapped, not %lu",
		    a.npages / 2 - 1, after.mapped - before.mapped);

	close(fd);
	area_free(&a);
}

static u64 page_flags(void *hva)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	int kpageflags = open("/proc/kpageflags", O_RDONLY);
	u64 entry, flags;

	TEST_ASSERT(pagemap >= 0 && kpageflags >= 0,
		    __KVM_SYSCALL_ERROR("open(pagemap, kpageflags)", -1));
	TEST_ASSERT(pread(pagemap, &entry, 8, (u64)hva / page_size * 8) == 8,
		    __KVM_SYSCALL_ERROR("pread(pagemap)", -1));
	entry &= GENMASK(54, 0);
	TEST_ASSERT(entry && pread(kpageflags, &flags, 8, entry * 8) == 8,
		    __KVM_SYSCALL_ERROR("pread(kpageflags)", -1));

	close(pagemap);
	close(kpageflags);
	return flags;
}

/*
 * The guest sees the tags of a page as soon as it is mapped, so they must have
 * been initialised, which the page's flag tells.  What has none is not mapped.
 */
static void test_mte(void)
{
	struct prefault_stats before = {}, after = {};
	struct area a;
	u64 i, tagged = 0;
	void *hva;
	int fd, r;

	if (!kvm_has_cap(KVM_CAP_ARM_MTE)) {
		pr_info("no MTE: tags are not tested\n");
		return;
	}

	a.vm = vm_create(1);
	vm_enable_cap(a.vm, KVM_CAP_ARM_MTE, 0);
	a.vcpu = vm_vcpu_add(a.vm, 0, guest_code);
	kvm_arch_vm_finalize_vcpus(a.vm);
	area_mmap(&a);
	area_add_slot(&a, 0);

	TEST_ASSERT(!(page_flags(a.hva + page_size) & KPF_MTE_TAGGED),
		    "Memory that was never tagged should not be marked as tagged");

	set_window(&a);
	touch(&a, 0, 1, TOUCH_READ);
	for (i = 0; i < a.npages; i++)
		tagged += !!(page_flags(a.hva + i * page_size) & KPF_MTE_TAGGED);
	TEST_ASSERT(tagged == a.npages,
		    "Expected the tags of %lu prefaulted pages to be initialised, not %lu",
		    a.npages, tagged);

	/* A mapping that cannot have tags, behind the memslot's back. */
	prefault_unmap_guest(a.hva, a.size);
	fd = open("/dev/zero", O_RDWR);
	TEST_ASSERT(fd >= 0, __KVM_SYSCALL_ERROR("open(/dev/zero)", fd));
	hva = replace_half(&a, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	memset(hva, 1, a.size / 2);

	prefault_read_stats(a.vcpu, &before);
	touch(&a, 0, 1, TOUCH_READ);
	prefault_read_stats(a.vcpu, &after);
	TEST_ASSERT(after.mapped - before.mapped == a.npages / 2 - 1,
		    "Expected %lu pages with tags to be mapped, not %lu",
		    a.npages / 2 - 1, after.mapped - before.mapped);

	prepare_touch(&a, a.npages - 1, a.npages, TOUCH_READ);
	r = _vcpu_run(a.vcpu);
	TEST_ASSERT(r == -1 && errno == EFAULT,
		    "Expected EFAULT for a page without tags, got %d, errno %d",
		    r, errno);

	close(fd);
	area_free(&a);
}

static int pre_fault(struct kvm_vcpu *vcpu, u64 gpa, u64 size, u64 *left)
{
	struct kvm_pre_fault_memory range = { .gpa = gpa, .size = size };
	int r = __vcpu_ioctl(vcpu, KVM_PRE_FAULT_MEMORY, &range);

	*left = range.size;
	return r ? errno : 0;
}

static void expect_error(struct kvm_vcpu *vcpu, u64 gpa, u64 size, int error,
			 const char *what)
{
	u64 left;
	int r = pre_fault(vcpu, gpa, size, &left);

	TEST_ASSERT(r == error && left == size,
		    "%s: expected error %d and all %#lx bytes left, got %d and %#lx",
		    what, error, size, r, left);
}

static void pre_fault_all(struct kvm_vcpu *vcpu, u64 size)
{
	u64 left;
	int r;

	for (; size; size = left) {
		r = pre_fault(vcpu, PREFAULT_GPA, size, &left);
		TEST_ASSERT(!r, "Expected to prefault, got error %d", r);
		TEST_ASSERT(!left, "Expected one call to do, %#lx bytes left", left);
	}
}

static void test_ioctl_errors(void)
{
	struct area a = area_create(0);
	u64 limit = BIT_ULL(a.vm->pa_bits);
	struct kvm_vm *vm;

	expect_error(a.vcpu, PREFAULT_GPA + 1, page_size, EINVAL, "Not aligned");
	expect_error(a.vcpu, PREFAULT_GPA, 0, EINVAL, "Nothing");
	expect_error(a.vcpu, PREFAULT_GPA + a.size, page_size, ENOENT, "No memslot");
	expect_error(a.vcpu, limit, page_size, ENOENT, "Above the IPA limit");
	expect_error(a.vcpu, -2ull * page_size, page_size, ENOENT, "At the end");

	munmap(a.hva, page_size);
	expect_error(a.vcpu, PREFAULT_GPA, a.size, EFAULT, "No VMA");
	area_free(&a);

	vm = vm_create_barebones();
	expect_error(__vm_vcpu_add(vm, 0), 0, page_size, ENOEXEC, "No KVM_ARM_VCPU_INIT");
	kvm_vm_free(vm);
}

static int nr_sigbus;

static void on_sigbus(int sig)
{
	WRITE_ONCE(nr_sigbus, nr_sigbus + 1);
}

/* Prefaulting a poisoned page is an error; only touching it is a signal. */
static void test_ioctl_poison(void)
{
	struct sigaction action = { .sa_handler = on_sigbus }, old;
	struct area a = area_create(0);

	sigaction(SIGBUS, &action, &old);
	if (madvise(a.hva, page_size, MADV_HWPOISON)) {
		pr_info("no MADV_HWPOISON: poison is not tested\n");
	} else {
		/* Who has the page mapped has been told so just now. */
		WRITE_ONCE(nr_sigbus, 0);
		expect_error(a.vcpu, PREFAULT_GPA, a.size, EHWPOISON, "Poison");
		TEST_ASSERT(!READ_ONCE(nr_sigbus), "Expected no SIGBUS from a prefault");
	}

	sigaction(SIGBUS, &old, NULL);
	area_free(&a);
}

static void on_alarm(int sig)
{
}

static void *send_alarms(void *arg)
{
	/* Until the other thread waits in userfaultfd, however long that takes. */
	for (;;) {
		usleep(20000);
		pthread_kill(*(pthread_t *)arg, SIGALRM);
		pthread_testcancel();
	}
	return NULL;
}

/* A prefault that waits for userfaultfd ends with a signal. */
static void test_ioctl_signal(void)
{
	struct sigaction action = { .sa_handler = on_alarm }, old;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct area a = area_create(0);
	pthread_t self = pthread_self(), sender;
	int fd = syscall(__NR_userfaultfd, O_CLOEXEC);

	TEST_ASSERT(fd >= 0 && !ioctl(fd, UFFDIO_API, &api),
		    __KVM_SYSCALL_ERROR("userfaultfd()", fd));
	kvm_madvise(a.hva, a.size, MADV_DONTNEED);
	reg.range.start = (u64)a.hva;
	reg.range.len = a.size;
	TEST_ASSERT(!ioctl(fd, UFFDIO_REGISTER, &reg),
		    __KVM_SYSCALL_ERROR("UFFDIO_REGISTER", -1));

	sigaction(SIGALRM, &action, &old);
	kvm_pthread_create(&sender, NULL, send_alarms, &self);
	expect_error(a.vcpu, PREFAULT_GPA, a.size, EINTR, "Signal");
	pthread_cancel(sender);
	kvm_pthread_join(sender, NULL);
	sigaction(SIGALRM, &old, NULL);

	close(fd);
	area_free(&a);
}

static void mmio_guest_code(void)
{
	u32 value = READ_ONCE(*(u32 *)MMIO_GPA);

	GUEST_ASSERT_EQ(value, 0x12345678);
	GUEST_DONE();
}

/* A prefault between an MMIO exit and its completion disturbs neither. */
static void test_ioctl_mmio(void)
{
	struct kvm_run saved;
	struct kvm_run *run;
	struct ucall uc;
	struct area a;

	a.vm = vm_create_with_one_vcpu(&a.vcpu, mmio_guest_code);
	area_mmap(&a);
	vm_set_user_memory_region(a.vm, SLOT, 0, PREFAULT_GPA, a.size, a.hva);
	virt_map(a.vm, MMIO_GPA, MMIO_GPA, 1);
	kvm_madvise(a.hva, a.size / 2, MADV_DONTNEED);

	run = a.vcpu->run;
	vcpu_run(a.vcpu);
	TEST_ASSERT(run->exit_reason == KVM_EXIT_MMIO && !run->mmio.is_write &&
		    run->mmio.phys_addr == MMIO_GPA && run->mmio.len == 4,
		    "Expected an MMIO read, exit reason %u (%s)",
		    run->exit_reason, exit_reason_str(run->exit_reason));

	*(u32 *)run->mmio.data = 0x12345678;
	saved = *run;
	pre_fault_all(a.vcpu, a.size);
	TEST_ASSERT(!memcmp(&saved, run, sizeof(saved)),
		    "Expected a prefault to leave struct kvm_run alone");
	expect_error(a.vcpu, PREFAULT_GPA + a.size, page_size, ENOENT, "No memslot");
	TEST_ASSERT(!memcmp(&saved, run, sizeof(saved)),
		    "Expected a failed prefault to leave struct kvm_run alone");

	vcpu_run(a.vcpu);
	switch (get_ucall(a.vcpu, &uc)) {
	case UCALL_ABORT:
		REPORT_GUEST_ASSERT(uc);
	case UCALL_DONE:
		break;
	default:
		TEST_FAIL("Unexpected ucall %lu", uc.cmd);
	}

	area_free(&a);
}

static void test_ioctl_faults(void)
{
	struct area a = area_create(0);
	struct faults before;

	/* Half of it is resident. */
	kvm_madvise(a.hva, a.size / 2, MADV_DONTNEED);
	before = read_faults(a.vcpu);
	pre_fault_all(a.vcpu, a.size);
	expect_faults(&a, before, "Prefaulting", 0, 0);
	touch(&a, 0, a.npages, TOUCH_READ);
	touch(&a, a.npages / 2, a.npages, TOUCH_WRITE);
	expect_faults(&a, before, "Touching what was prefaulted", 0, 0);

	area_free(&a);
}

/* Neither a block nor what is logged is changed by a prefault. */
static void test_ioctl_block(void)
{
	struct area a;
	struct faults before;
	unsigned long *bmap;
	u64 i;

	if (!thp_configured()) {
		pr_info("no THP: blocks are not tested\n");
		return;
	}

	a.vm = vm_create_with_one_vcpu(&a.vcpu, guest_code);
	area_mmap(&a);
	kvm_madvise(a.hva, a.size, MADV_DONTNEED);
	kvm_madvise(a.hva, a.size, MADV_HUGEPAGE);
	memset(a.hva, 0, a.size);
	area_add_slot(&a, 0);

	before = read_faults(a.vcpu);
	touch(&a, 0, a.npages, TOUCH_WRITE);
	if (read_faults(a.vcpu).translation - before.translation != 1) {
		pr_info("no block was mapped: blocks are not tested\n");
		area_free(&a);
		return;
	}

	vm_set_user_memory_region(a.vm, SLOT, KVM_MEM_LOG_DIRTY_PAGES,
				  PREFAULT_GPA, a.size, a.hva);
	before = read_faults(a.vcpu);
	pre_fault_all(a.vcpu, a.size);
	touch(&a, 0, a.npages, TOUCH_READ);
	expect_faults(&a, before, "Reading a block that was prefaulted", 0, 0);

	bmap = bitmap_zalloc(a.npages);
	kvm_vm_get_dirty_log(a.vm, SLOT, bmap);
	for (i = 0; i < a.npages; i++)
		TEST_ASSERT(!test_bit(i, bmap), "Page %lu should not be dirty", i);

	free(bmap);
	area_free(&a);
}

/* pKVM hosts serve neither, for VMs of any type. */
static void test_refused(void)
{
	struct area a;
	u64 left;
	int r;

	TEST_ASSERT(!kvm_check_cap(KVM_CAP_PRE_FAULT_MEMORY),
		    "KVM_PRE_FAULT_MEMORY should not be announced");

	a.vm = vm_create_with_one_vcpu(&a.vcpu, guest_code);
	TEST_ASSERT(!vm_check_cap(a.vm, KVM_CAP_AUTO_PREFAULT) &&
		    !vm_check_cap(a.vm, KVM_CAP_PRE_FAULT_MEMORY),
		    "A VM should not announce what its host refuses");

	r = __vm_set_prefault(a.vm, PREFAULT_PAGES_MAX * page_size, 0);
	TEST_ASSERT(r && errno == EINVAL, "Expected EINVAL for a window, got %d, errno %d",
		    r, errno);
	r = __vm_set_prefault(a.vm, 0, 0);
	TEST_ASSERT(r && errno == EINVAL, "Expected EINVAL for window 0, got %d, errno %d",
		    r, errno);

	r = pre_fault(a.vcpu, 0, page_size, &left);
	TEST_ASSERT(r == EOPNOTSUPP && left == page_size,
		    "Expected EOPNOTSUPP for a prefault, got %d", r);

	kvm_vm_free(a.vm);
}

static void test_capabilities(void)
{
	u64 max = PREFAULT_PAGES_MAX * page_size;
	struct kvm_vm *vm = vm_create_barebones();

	TEST_ASSERT(kvm_check_cap(KVM_CAP_AUTO_PREFAULT) == max &&
		    vm_check_cap(vm, KVM_CAP_AUTO_PREFAULT) == max,
		    "Expected a maximum of %lu bytes", max);
	TEST_ASSERT(kvm_check_cap(KVM_CAP_PRE_FAULT_MEMORY) == 1 &&
		    vm_check_cap(vm, KVM_CAP_PRE_FAULT_MEMORY) == 1,
		    "KVM_PRE_FAULT_MEMORY should be announced");
	kvm_vm_free(vm);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "capabilities",	test_capabilities },
	{ "access flag",	test_access_flag },
	{ "execution",		test_exec },
	{ "dirty logging",	test_logged },
	{ "read-only memslot",	test_readonly },
	{ "edge of a VMA",	test_vma_edge },
	{ "tags",		test_mte },
	{ "ioctl: errors",	test_ioctl_errors },
	{ "ioctl: poison",	test_ioctl_poison },
	{ "ioctl: signal",	test_ioctl_signal },
	{ "ioctl: MMIO",	test_ioctl_mmio },
	{ "ioctl: faults",	test_ioctl_faults },
	{ "ioctl: block",	test_ioctl_block },
};

int main(int argc, char *argv[])
{
	unsigned int i;

	page_size = getpagesize();

	if (!kvm_check_cap(KVM_CAP_AUTO_PREFAULT)) {
		test_refused();
		pr_info("refused, as it should be\n");
		return 0;
	}

	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		pr_info("%s\n", tests[i].name);
		tests[i].run();
	}

	return 0;
}
