// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_CAP_AUTO_PREFAULT: what guest and userspace observe of it
 */
#include <linux/falloc.h>

#include "kvm_test_harness.h"
#include "prefault_vm.h"
#include "processor.h"

#define FIXED	KVM_AUTO_PREFAULT_FIXED

FIXTURE(auto_prefault) { int unused; };
FIXTURE_SETUP(auto_prefault) { pvm_set_up(); }
FIXTURE_TEARDOWN(auto_prefault) { pvm_tear_down(); }

/*
 * The interface.
 */

TEST_F_TIMEOUT(auto_prefault, check_extension, PVM_TIMEOUT_SECONDS)
{
	pvm_create(1);

	TEST_ASSERT(pvm.max_size >= 2 * pvm.page_size && !(pvm.max_size & (pvm.max_size - 1)),
		    "/dev/kvm should offer a power of two from two pages on, not %lu",
		    pvm.max_size);
	TEST_ASSERT(vm_check_cap(pvm.vm, KVM_CAP_AUTO_PREFAULT) == pvm.max_size,
		    "An ordinary VM should be offered the maximum, %lu, not %d",
		    pvm.max_size, vm_check_cap(pvm.vm, KVM_CAP_AUTO_PREFAULT));
}

TEST_F_TIMEOUT(auto_prefault, good_arguments, PVM_TIMEOUT_SECONDS)
{
	u64 size, pages;
	void *hva;

	pvm_create(1);
	hva = pvm_add_memory(0, PVM_SPAN);

	for (size = 2 * pvm.page_size; size <= pvm.max_size; size *= 2) {
		pages = min_t(u64, size / pvm.page_size, PREFAULT_PAGES_MAX);

		/* Accepted is not enough: it is also used. */
		vm_set_prefault(pvm.vm, size, FIXED);
		pvm_expect_window(hva, PVM_SPAN * pvm.page_size, PVM_SPAN / 2 + 1, pages - 1);
		vm_set_prefault(pvm.vm, size, 0);
	}
	vm_set_prefault(pvm.vm, 0, FIXED);
	vm_set_prefault(pvm.vm, 0, 0);
}

static void expect_einval(struct kvm_enable_cap *cap)
{
	int ret;

	cap->cap = KVM_CAP_AUTO_PREFAULT;
	ret = __vm_ioctl(pvm.vm, KVM_ENABLE_CAP, cap);
	TEST_ASSERT(ret == -1 && errno == EINVAL,
		    "flags %#x, args %#llx %#llx %#llx %#llx should be EINVAL, returned %d, errno %d",
		    cap->flags, cap->args[0], cap->args[1], cap->args[2],
		    cap->args[3], ret, errno);
}

TEST_F_TIMEOUT(auto_prefault, bad_arguments, PVM_TIMEOUT_SECONDS)
{
	const u64 good = 2 * pvm.page_size, old_sizes[] = { 0, good, 8 * pvm.page_size };
	struct kvm_enable_cap bad[] = {
		{ .args = { 1 } },
		{ .args = { pvm.page_size } },
		{ .args = { pvm.page_size / 2 } },
		{ .args = { 3 * pvm.page_size } },
		{ .args = { good + 1 } },
		{ .args = { pvm.max_size + pvm.page_size } },
		{ .args = { pvm.max_size * 2 } },
		{ .args = { BIT_ULL(63) } },
		{ .args = { -1ull } },
		{ .args = { good, 2 } },
		{ .args = { good, FIXED | 2 } },
		{ .args = { good, BIT_ULL(63) } },
		{ .args = { good, 0, 1 } },
		{ .args = { good, 0, 0, 1 } },
		{ .args = { good }, .flags = 1 },
		{ .args = { 0, 2 } },
		{ .args = { 0, 0, 1 } },
		{ .args = { 0, 0, 0, 1 } },
		{ .args = { 0 }, .flags = 1 },
	};
	struct prefault_stats stats;
	void *hva;
	int i, j;

	pvm_create(1);
	hva = pvm_add_memory(0, PVM_SPAN);

	for (i = 0; i < ARRAY_SIZE(old_sizes); i++) {
		vm_set_prefault(pvm.vm, old_sizes[i], FIXED);
		for (j = 0; j < ARRAY_SIZE(bad); j++) {
			expect_einval(&bad[j]);

			if (old_sizes[i]) {
				pvm_expect_window(hva, PVM_SPAN * pvm.page_size, 100,
						  old_sizes[i] / pvm.page_size - 1);
				continue;
			}
			prefault_unmap_guest(hva, PVM_SPAN * pvm.page_size);
			stats = pvm_load_page(100);
			TEST_ASSERT(!stats.windows,
				    "A refused argument should not switch the window on");
		}
	}
}

TEST_F_TIMEOUT(auto_prefault, off, PVM_TIMEOUT_SECONDS)
{
	struct prefault_stats stats;
	void *hva;

	pvm_create(1);
	hva = pvm_add_memory(0, PVM_SPAN);

	stats = pvm_load_range(0, PVM_SPAN);
	pvm_expect_patterns(PVM_SPAN);
	TEST_ASSERT(pvm_nr_faults(&stats) >= PVM_SPAN, "Expected a fault for each page, took %lu",
		    pvm_nr_faults(&stats));
	TEST_ASSERT(!stats.windows && !stats.mapped && !stats.backoff,
		    "Nothing should be prefaulted while it is off");

	/* The same after it has been on. */
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	vm_set_prefault(pvm.vm, 0, FIXED);
	prefault_unmap_guest(hva, PVM_SPAN * pvm.page_size);
	stats = pvm_load_range(0, PVM_SPAN);
	TEST_ASSERT(pvm_nr_faults(&stats) >= PVM_SPAN && !stats.windows,
		    "Switched off again, it took %lu faults and %lu windows",
		    pvm_nr_faults(&stats), stats.windows);
}

#define PARAMETER "/sys/module/kvm/parameters/auto_prefault_size"

static u64 read_parameter(void)
{
	char buf[32] = {};
	int fd = open(PARAMETER, O_RDONLY);

	TEST_ASSERT(fd >= 0 && read(fd, buf, sizeof(buf) - 1) > 0,
		    "Cannot read " PARAMETER ", errno: %d", errno);
	close(fd);
	return strtoull(buf, NULL, 0);
}

/* Returns 0 or errno. */
static int write_parameter(const char *value)
{
	int fd = open(PARAMETER, O_WRONLY), ret;

	TEST_ASSERT(fd >= 0, "Cannot open " PARAMETER ", errno: %d", errno);
	ret = write(fd, value, strlen(value)) < 0 ? errno : 0;
	close(fd);
	return ret;
}

/* Loads a page in a new VM, for which nothing was negotiated. */
static struct prefault_stats try_default(void)
{
	struct prefault_stats stats;

	pvm.keep_default = true;
	pvm_create(1);
	pvm_add_memory(0, pvm.full_pages);
	stats = pvm_load_page(pvm.full_pages / 2);
	kvm_vm_free(pvm.vm);
	pvm.vm = NULL;
	return stats;
}

TEST_F_TIMEOUT(auto_prefault, module_parameter, PVM_TIMEOUT_SECONDS)
{
	const char * const bad[] = { "1", "4095", "12288", "-1", "abc", "2147483648" };
	struct prefault_stats stats;
	char size[32], old[32];
	int i;

	if (access(PARAMETER, W_OK))
		SKIP(return, PARAMETER " cannot be written");

	snprintf(old, sizeof(old), "%lu", read_parameter());
	snprintf(size, sizeof(size), "%lu", pvm.full_size);

	TEST_ASSERT(!write_parameter(size), "%s should be accepted", size);
	stats = try_default();
	TEST_ASSERT(stats.windows == 1 && stats.mapped,
		    "A new VM should have the default window, mapped %lu pages",
		    stats.mapped);

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		TEST_ASSERT(write_parameter(bad[i]) == EINVAL,
			    "'%s' should be refused with EINVAL", bad[i]);
		TEST_ASSERT(read_parameter() == pvm.full_size,
			    "'%s' was refused, but changed the parameter to %lu",
			    bad[i], read_parameter());
	}

	TEST_ASSERT(!write_parameter("0"), "0 should be accepted");
	stats = try_default();
	/* The shadow MMU has always prefetched some. */
	TEST_ASSERT(!stats.windows || pvm_uses_shadow_mmu(),
		    "0 should be off, mapped %lu pages", stats.mapped);

	TEST_ASSERT(!write_parameter(old), "%s, the old value, should be accepted", old);
}

/*
 * Resident memory.
 */

enum order {
	FORWARD,
	REVERSE,
	RANDOM,
};

FIXTURE(prefault_order) { int unused; };
FIXTURE_SETUP(prefault_order) { pvm_set_up(); }
FIXTURE_TEARDOWN(prefault_order) { pvm_tear_down(); }

FIXTURE_VARIANT(prefault_order) {
	enum order order;
	u32 seed;
};

FIXTURE_VARIANT_ADD(prefault_order, forward) { .order = FORWARD };
FIXTURE_VARIANT_ADD(prefault_order, reverse) { .order = REVERSE };
FIXTURE_VARIANT_ADD(prefault_order, random_1) { .order = RANDOM, .seed = 1 };
FIXTURE_VARIANT_ADD(prefault_order, random_2) { .order = RANDOM, .seed = 2 };
FIXTURE_VARIANT_ADD(prefault_order, random_3) { .order = RANDOM, .seed = 3 };

static struct prefault_stats load_in_order(enum order order, u32 seed)
{
	struct kvm_random_state order_rng = new_kvm_random_state(seed);
	u32 i;

	pvm_list_range(0, PVM_SPAN);
	for (i = 0; order == REVERSE && i < PVM_SPAN; i++)
		pvm.areas[0]->list[i] = PVM_SPAN - 1 - i;
	if (order == RANDOM)
		prefault_shuffle(pvm.areas[0]->list, PVM_SPAN, &order_rng);

	return pvm_run_list(PVM_LOAD, PVM_SPAN);
}

/* 16 MiB with 4K pages. */
TEST_F_TIMEOUT(prefault_order, resident, PVM_TIMEOUT_SECONDS)
{
	struct prefault_stats stats;
	u64 limit = 40, i;
	void *hva;

	pvm_create(1);
	hva = pvm_add_memory(0, PVM_SPAN);

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	stats = load_in_order(variant->order, variant->seed);
	pvm_expect_patterns(PVM_SPAN);
	TEST_ASSERT(pvm_nr_faults(&stats) <= limit + PVM_FAULT_NOISE,
		    "Window of %lu bytes: expected at most %lu faults for %u pages, took %lu",
		    pvm.full_size, limit, PVM_SPAN, pvm_nr_faults(&stats));
	TEST_ASSERT(stats.mapped + stats.windows == PVM_SPAN,
		    "%lu pages mapped by %lu windows: together not %u, each page once",
		    stats.mapped, stats.windows, PVM_SPAN);

	/* Without FIXED: it is the kernel's choice, but some good must come of it. */
	prefault_unmap_guest(hva, PVM_SPAN * pvm.page_size);
	vm_set_prefault(pvm.vm, pvm.full_size, 0);
	stats = load_in_order(variant->order, variant->seed);
	pvm_expect_patterns(PVM_SPAN);
	limit = variant->order == RANDOM ? PVM_SPAN / 4 : 40;
	TEST_ASSERT(pvm_nr_faults(&stats) <= limit + PVM_FAULT_NOISE,
		    "Adaptive window: expected at most %lu faults for %u pages, took %lu",
		    limit, PVM_SPAN, pvm_nr_faults(&stats));

	/* Stores, too. */
	prefault_unmap_guest(hva, PVM_SPAN * pvm.page_size);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	pvm.areas[0]->value = variant->seed;
	stats = pvm_run_list(PVM_STORE, PVM_SPAN);
	TEST_ASSERT(pvm_nr_faults(&stats) <= 40 + PVM_FAULT_NOISE,
		    "Stores: expected at most 40 faults for %u pages, took %lu",
		    PVM_SPAN, pvm_nr_faults(&stats));
	for (i = 0; i < PVM_SPAN; i++)
		TEST_ASSERT(*pvm_word(hva, i) == pvm_stored(i, variant->seed),
			    "Page %lu: the guest's store is lost", i);
}

/* A window maps what it is to map, all of it and nothing else. */
static void expect_exact_window(void *hva, u64 first, u64 pages, u64 touched)
{
	struct prefault_stats stats;

	vm_set_prefault(pvm.vm, pages * pvm.page_size, FIXED);
	pvm_expect_window(hva, PVM_SPAN * pvm.page_size, touched, pages - 1);
	pvm_expect_mapped(first, pages);
	pvm_expect_patterns(pages);

	/* On either side of it the next window, of two pages, finds two holes. */
	vm_set_prefault(pvm.vm, 2 * pvm.page_size, FIXED);
	stats = pvm_load_page(first - 1);
	TEST_ASSERT(stats.windows == 1 && stats.mapped == 1,
		    "The pages before the window of %lu pages should not be mapped", pages);
	stats = pvm_load_page(first + pages);
	TEST_ASSERT(stats.windows == 1 && stats.mapped == 1,
		    "The pages behind the window of %lu pages should not be mapped", pages);
}

TEST_F_TIMEOUT(auto_prefault, exact_window, PVM_TIMEOUT_SECONDS)
{
	const u64 first = 2 * pvm.full_pages;
	u64 pages, size;
	void *hva;

	pvm_create(1);
	hva = pvm_add_memory(0, PVM_SPAN);

	for (pages = 2; pages <= pvm.full_pages; pages *= 2) {
		expect_exact_window(hva, first, pages, first);
		expect_exact_window(hva, first, pages, first + pages / 2);
		expect_exact_window(hva, first, pages, first + pages - 1);
	}

	/* Larger windows do not reach into the next table. */
	for (size = 2 * pvm.full_size; size <= pvm.max_size; size *= 2) {
		vm_set_prefault(pvm.vm, size, FIXED);
		pvm_expect_window(hva, PVM_SPAN * pvm.page_size, first + 3,
				  pvm.full_pages - 1);
		TEST_ASSERT(pvm_load_page(first + pvm.full_pages).windows == 1,
			    "A window of %lu bytes should end at its table", size);
	}
}

/* What the host does not have is not mapped, and not made to exist. */
TEST_F_TIMEOUT(auto_prefault, host_holes, PVM_TIMEOUT_SECONDS)
{
	const u64 touched = pvm.full_pages / 3;
	u64 i, holes = 0, resident;
	void *hva;

	pvm_create(1);
	hva = pvm_add_memory(0, pvm.full_pages);
	for (i = 0; i < pvm.full_pages; i++) {
		if (i == touched || pvm_random(3))
			continue;
		kvm_madvise(pvm_page(hva, i), pvm.page_size, MADV_DONTNEED);
		holes++;
	}
	resident = pvm.full_pages - holes;

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	pvm_expect_window(hva, pvm.full_size, touched, resident - 1);
	TEST_ASSERT(prefault_count_resident(hva, pvm.full_size) == resident,
		    "%lu pages were resident, now %lu are", resident,
		    prefault_count_resident(hva, pvm.full_size));

	/* The host's page of zeros is a hole, too. */
	kvm_madvise(hva, pvm.full_size, MADV_DONTNEED);
	for (i = 0; i < pvm.full_pages; i++)
		if (i % 4)
			READ_ONCE(*pvm_word(hva, i));
		else
			*pvm_word(hva, i) = pvm_pattern(i);
	pvm_expect_window(hva, pvm.full_size, 0, pvm.full_pages / 4 - 1);

	/* What is written there later is seen. */
	for (i = 0; i < pvm.full_pages; i++)
		*pvm_word(hva, i) = pvm_pattern(i);
	pvm_load_range(0, pvm.full_pages);
	pvm_expect_patterns(pvm.full_pages);
}

/* What KVM_PRE_FAULT_MEMORY says is done is mapped, whether it was there or not. */
TEST_F_TIMEOUT(auto_prefault, pre_fault_holes, PVM_TIMEOUT_SECONDS)
{
	const u64 nr = 2 * pvm.full_pages;
	void *hva;
	u64 i;

	if (!kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY) || pvm_uses_shadow_mmu())
		SKIP(return, "No KVM_PRE_FAULT_MEMORY");

	pvm_create(1);
	hva = pvm_add_memory(0, nr);
	for (i = 0; i < nr; i++)
		if (i % 3)
			kvm_madvise(pvm_page(hva, i), pvm.page_size, MADV_DONTNEED);

	pvm_pre_fault(nr);
	pvm_expect_mapped(0, nr);
}

/* Statistics say what became of every page of a window. */
TEST_F_TIMEOUT(auto_prefault, statistics, PVM_TIMEOUT_SECONDS)
{
	const u64 absent = pvm.full_pages / 4;
	struct prefault_stats stats;
	int tries;
	void *hva;

	pvm_create(1);
	hva = pvm_add_memory(0, pvm.full_pages);
	kvm_madvise(pvm_page(hva, pvm.full_pages - absent), absent * pvm.page_size,
		    MADV_DONTNEED);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);

	for (tries = 0; tries < 5; tries++) {
		prefault_unmap_guest(hva, pvm.full_size);
		stats = pvm_load_page(1);
		if (stats.windows == 1 && stats.absent == absent && !stats.raced &&
		    !stats.backoff && stats.mapped == pvm.full_pages - absent - 1)
			return;
	}
	TEST_FAIL("Expected 1 window, %lu mapped, %lu absent; got %lu, %lu, %lu, and %lu, %lu",
		  pvm.full_pages - absent - 1, absent, stats.windows, stats.mapped,
		  stats.absent, stats.raced, stats.backoff);
}

/*
 * Memslots.
 */

TEST_F_TIMEOUT(auto_prefault, memslot_edges, PVM_TIMEOUT_SECONDS)
{
	/* In pages from the start of a window; the last one ends in the next. */
	const struct {
		u64 first, nr, hva_offset, touch, mapped;
	} slots[] = {
		/* Starts inside, at an address that is aligned differently. */
		{ 10, 190, 3, 100, 189 },
		/* The next one is adjacent to it, but elsewhere in the host. */
		{ 200, 100, 0, 200, 99 },
		{ 300, 1, 7, 300, 0 },
		{ 301, 2, 8, 302, 1 },
		/* Nothing from 303 to 399. */
		{ 400, pvm.full_pages - 400 + 50, 5, pvm.full_pages - 1, pvm.full_pages - 400 - 1 },
	};
	struct prefault_stats stats;
	void *hva;
	u64 i;

	if (pvm.full_pages < 512)
		SKIP(return, "Needs a window of 512 pages");

	pvm_create(1);
	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		hva = pvm_mmap(slots[i].nr, slots[i].hva_offset);
		pvm_fill(hva, slots[i].first, slots[i].nr);
		pvm_set_slot(PVM_SLOT + i, 0, slots[i].first, slots[i].nr, hva);
	}

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		stats = pvm_load_page(slots[i].touch);
		TEST_ASSERT(stats.windows == 1 && stats.mapped == slots[i].mapped,
			    "Page %lu: expected a window with %lu pages of its memslot, mapped %lu",
			    slots[i].touch, slots[i].mapped, stats.mapped);
	}
	stats = pvm_load_page(pvm.full_pages + 1);
	TEST_ASSERT(stats.windows == 1 && stats.mapped == 49,
		    "Expected the 50 pages at the end of the last memslot, mapped %lu others",
		    stats.mapped);

	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		pvm_expect_mapped(slots[i].first, slots[i].nr);
		pvm_expect_patterns(slots[i].nr);
	}

	/* The gap is still a gap. */
	pvm_load_range(303, 97);
	TEST_ASSERT(pvm.nr_mmio_reads == 97, "97 loads should end in userspace, %lu did",
		    pvm.nr_mmio_reads);
	for (i = 0; i < 97; i++)
		TEST_ASSERT(pvm.areas[0]->values[i] == PVM_MMIO_VALUE,
			    "Page %lu should have been emulated", 303 + i);
}

TEST_F_TIMEOUT(auto_prefault, readonly_memslot, PVM_TIMEOUT_SECONDS)
{
	struct prefault_stats stats;
	void *hva;
	u64 i;

	if (!kvm_has_cap(KVM_CAP_READONLY_MEM))
		SKIP(return, "No read-only memslots");

	pvm_create(1);
	hva = pvm_add_memory(KVM_MEM_READONLY, pvm.full_pages);

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	pvm_expect_window(hva, pvm.full_size, 5, pvm.full_pages - 1);
	pvm_expect_mapped(0, pvm.full_pages);
	pvm_expect_patterns(pvm.full_pages);

	/* All of these were prefaulted; stores are userspace's business. */
	pvm.areas[0]->value = 1;
	pvm_list_range(0, pvm.full_pages);
	stats = pvm_run_list(PVM_STORE, pvm.full_pages);
	TEST_ASSERT(pvm.nr_mmio_writes == pvm.full_pages,
		    "%lu stores should end in userspace, %lu did", pvm.full_pages,
		    pvm.nr_mmio_writes);
	TEST_ASSERT(!stats.windows, "Stores there are nothing to prefault for");
	for (i = 0; i < pvm.full_pages; i++)
		TEST_ASSERT(*pvm_word(hva, i) == pvm_pattern(i),
			    "Page %lu of a read-only memslot was written", i);
}

/* Memslots without memory of their own in userspace's page tables. */
TEST_F_TIMEOUT(auto_prefault, guest_memfd_memslot, PVM_TIMEOUT_SECONDS)
{
	const u64 flags = GUEST_MEMFD_FLAG_MMAP | GUEST_MEMFD_FLAG_INIT_SHARED;
	struct prefault_stats stats;
	void *hva;
	int fd;

	pvm_create(1);
	if (!kvm_has_cap(KVM_CAP_GUEST_MEMFD) ||
	    (vm_check_cap(pvm.vm, KVM_CAP_GUEST_MEMFD_FLAGS) & flags) != flags)
		SKIP(return, "No guest_memfd that can be mapped");

	fd = vm_create_guest_memfd(pvm.vm, pvm.full_size, flags);
	hva = kvm_mmap(pvm.full_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	pvm_fill(hva, 0, pvm.full_pages / 2);
	vm_set_user_memory_region2(pvm.vm, PVM_SLOT, KVM_MEM_GUEST_MEMFD, PREFAULT_GPA,
				   pvm.full_size, hva, fd, 0);

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	stats = pvm_load_range(0, pvm.full_pages / 2);
	pvm_expect_patterns(pvm.full_pages / 2);
	TEST_ASSERT(!stats.windows && !stats.mapped,
		    "guest_memfd should be left alone, mapped %lu pages", stats.mapped);
	TEST_ASSERT(prefault_count_resident(hva, pvm.full_size) == pvm.full_pages / 2,
		    "Pages that nobody touched should stay absent");
	close(fd);
}

#ifdef __x86_64__
/* Any of its pages may be private; userspace's mapping is what is shared. */
static void *create_protected_vm(u32 nr)
{
	void *hva;
	int fd;

	pvm_create_type(KVM_X86_SW_PROTECTED_VM, 0, nr);
	hva = pvm_mmap(pvm.full_pages, 0);
	pvm_fill(hva, 0, pvm.full_pages);
	fd = vm_create_guest_memfd(pvm.vm, pvm.full_size, 0);
	vm_set_user_memory_region2(pvm.vm, PVM_SLOT, KVM_MEM_GUEST_MEMFD, PREFAULT_GPA,
				   pvm.full_size, hva, fd, 0);
	return hva;
}

static void set_private(u64 first, u64 nr, bool private)
{
	vm_set_memory_attributes(pvm.vm, PREFAULT_GPA + first * pvm.page_size, nr * pvm.page_size,
				 private ? KVM_MEMORY_ATTRIBUTE_PRIVATE : 0);
}

static bool is_private(u64 page)
{
	return page % 8 >= 5;
}

static void set_private_pages(void)
{
	u64 i;

	for (i = 5; i < pvm.full_pages; i += 8)
		set_private(i, 3, true);
}

TEST_F_TIMEOUT(auto_prefault, private_memory, PVM_TIMEOUT_SECONDS)
{
	const u64 nr_private = pvm.full_pages / 8 * 3, nr_shared = pvm.full_pages - nr_private;
	struct prefault_stats stats;
	u64 i, n, want;
	void *hva;

	if (!(kvm_check_cap(KVM_CAP_VM_TYPES) & BIT(KVM_X86_SW_PROTECTED_VM)))
		SKIP(return, "No software-protected VMs");

	hva = create_protected_vm(1);

	/* Private pages get a content of their own, and are not mapped then. */
	set_private(0, pvm.full_pages, true);
	pvm.areas[0]->value = ~0ull;
	pvm_list_range(0, pvm.full_pages);
	pvm_run_list(PVM_STORE, pvm.full_pages);
	set_private(0, pvm.full_pages, false);
	set_private_pages();

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	pvm_expect_window(hva, pvm.full_size, 0, nr_shared - 1);

	/* A private page is served, but alone. */
	for (i = 0, n = 0; i < pvm.full_pages; i++)
		if (is_private(i))
			pvm.areas[0]->list[n++] = i;
	stats = pvm_run_list(PVM_LOAD, nr_private);
	TEST_ASSERT(!stats.windows && pvm_nr_faults(&stats) == nr_private,
		    "%lu private pages should each take a fault without a window, took %lu and %lu",
		    nr_private, pvm_nr_faults(&stats), stats.windows);

	pvm_load_range(0, pvm.full_pages);
	for (i = 0; i < pvm.full_pages; i++) {
		want = is_private(i) ? pvm_stored(i, ~0ull) : pvm_pattern(i);
		TEST_ASSERT(pvm.areas[0]->values[i] == want,
			    "Page %lu, %s: the guest should read %lx, not %lx", i,
			    is_private(i) ? "private" : "shared", want,
			    pvm.areas[0]->values[i]);
	}
}

TEST_F_TIMEOUT(auto_prefault, private_memory_race, PVM_TIMEOUT_SECONDS)
{
	const u64 nr = 8;
	u64 round, first;
	void *hva;

	if (!(kvm_check_cap(KVM_CAP_VM_TYPES) & BIT(KVM_X86_SW_PROTECTED_VM)))
		SKIP(return, "No software-protected VMs");

	hva = create_protected_vm(PVM_MAX_VCPUS);
	set_private(0, pvm.full_pages, true);
	pvm.areas[0]->value = ~0ull;
	pvm_list_range(0, pvm.full_pages);
	pvm_run_list(PVM_STORE, pvm.full_pages);
	set_private(0, pvm.full_pages, false);

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	pvm_start_vcpus(PVM_WATCH, PVM_INVERTED, 0, pvm.full_pages);
	for (round = 0; round < 500; round++) {
		first = pvm_random(pvm.full_pages / nr) * nr;

		pvm_next_step(first, nr);
		set_private(first, nr, (pvm.areas[0]->seq[first] / 2 + 1) & 1);
		pvm_next_step(first, nr);
		if (!(round % 16))
			prefault_unmap_guest(hva, pvm.full_size);
	}
	pvm_wait_for_passes(2);
	pvm_stop_vcpus();
	pvm_expect_watched();
}
#endif

/*
 * Userfaultfd.
 */

/* Missing, until a handler thread is asked for it. */
static struct prefault_uffd *add_missing_memory(u64 nr, u64 chunk_pages)
{
	void *hva = pvm_mmap(nr, 0), *src = pvm_mmap(nr, 0);

	pvm_fill(src, 0, nr);
	pvm_set_slot(PVM_SLOT, 0, 0, nr, hva);
	return prefault_uffd_start(hva, nr * pvm.page_size, chunk_pages * pvm.page_size, src);
}

/*
 * The guest touches one random page in each of half the chunks.  The handler
 * is asked for these and for nothing else, and what was not touched stays
 * absent.  A window that waited for a neighbour would wait forever.
 */
static void touch_half_of_chunks(u64 nr, u64 chunk_pages, u64 flags)
{
	u64 i, nr_chunks = nr / chunk_pages, touched = nr_chunks / 2;
	u32 *list = pvm.areas[0]->list, chunks[PVM_SPAN];
	struct prefault_stats stats;
	struct prefault_uffd *uffd;

	uffd = add_missing_memory(nr, chunk_pages);
	vm_set_prefault(pvm.vm, pvm.full_size, flags);

	for (i = 0; i < nr_chunks; i++)
		chunks[i] = i;
	prefault_shuffle(chunks, nr_chunks, &pvm.rng);
	for (i = 0; i < touched; i++)
		list[i] = chunks[i] * chunk_pages + pvm_random(chunk_pages);
	stats = pvm_run_list(PVM_LOAD, touched);
	pvm_expect_patterns(touched);
	TEST_ASSERT(stats.windows, "There should have been windows");

	/* Whatever was copied is there, and costs no event. */
	for (i = 0; i < touched * chunk_pages; i++)
		list[i] = chunks[i / chunk_pages] * chunk_pages + i % chunk_pages;
	prefault_shuffle(list, touched * chunk_pages, &pvm.rng);
	pvm_run_list(PVM_LOAD, touched * chunk_pages);
	pvm_expect_patterns(touched * chunk_pages);

	prefault_uffd_stop(uffd);
	TEST_ASSERT(uffd->nr_events == touched,
		    "%lu chunks were touched, userfaultfd reported %lu events", touched,
		    uffd->nr_events);
	for (i = 0; i < touched; i++)
		TEST_ASSERT(uffd->offsets[i] / pvm.page_size / chunk_pages == chunks[i],
			    "Event %lu should be for chunk %u, is for page %lu", i,
			    chunks[i], uffd->offsets[i] / pvm.page_size);
	TEST_ASSERT(prefault_count_resident(uffd->hva, uffd->size) == touched * chunk_pages,
		    "%lu pages were copied, but %lu are resident", touched * chunk_pages,
		    prefault_count_resident(uffd->hva, uffd->size));
	prefault_uffd_free(uffd);
}

FIXTURE(prefault_uffd) { int unused; };
FIXTURE_SETUP(prefault_uffd) { pvm_set_up(); }
FIXTURE_TEARDOWN(prefault_uffd) { pvm_tear_down(); }

FIXTURE_VARIANT(prefault_uffd) {
	u64 chunk_pages;
	u64 flags;
};

FIXTURE_VARIANT_ADD(prefault_uffd, one_page) { .chunk_pages = 1, .flags = FIXED };
FIXTURE_VARIANT_ADD(prefault_uffd, sixteen_pages) { .chunk_pages = 16, .flags = FIXED };
FIXTURE_VARIANT_ADD(prefault_uffd, a_whole_window) { .chunk_pages = 512, .flags = FIXED };
FIXTURE_VARIANT_ADD(prefault_uffd, one_page_adaptive) { .chunk_pages = 1 };
FIXTURE_VARIANT_ADD(prefault_uffd, sixteen_pages_adaptive) { .chunk_pages = 16 };

TEST_F_TIMEOUT(prefault_uffd, missing, PVM_TIMEOUT_SECONDS)
{
	pvm_create(1);
	touch_half_of_chunks(PVM_SPAN, variant->chunk_pages, variant->flags);
}

/* With nothing to prefault there is little to pay, but it does not stay so. */
TEST_F_TIMEOUT(auto_prefault, back_off, PVM_TIMEOUT_SECONDS)
{
	const u64 sparse = PVM_SPAN / 2;
	struct prefault_stats stats;
	struct prefault_uffd *uffd;
	u64 limit;
	void *dense;

	pvm_create(1);
	uffd = add_missing_memory(sparse, 1);
	dense = pvm_mmap(PVM_SPAN - sparse, 0);
	pvm_fill(dense, sparse, PVM_SPAN - sparse);
	pvm_set_slot(PVM_SLOT + 1, 0, sparse, PVM_SPAN - sparse, dense);
	vm_set_prefault(pvm.vm, pvm.full_size, 0);

	pvm_list_range(0, sparse);
	prefault_shuffle(pvm.areas[0]->list, sparse, &pvm.rng);
	stats = pvm_run_list(PVM_LOAD, sparse);
	pvm_expect_patterns(sparse);
	TEST_ASSERT(!stats.mapped, "Every page was new, but %lu were mapped", stats.mapped);
	TEST_ASSERT(stats.backoff && stats.windows <= sparse / 8,
		    "%lu faults with nothing to prefault should leave at most %lu windows, not %lu",
		    sparse, sparse / 8, stats.windows);
	TEST_ASSERT(stats.windows >= sparse / 100,
		    "Of %lu faults at most 64 in a row should be skipped, windows: %lu",
		    sparse, stats.windows);
	TEST_ASSERT(stats.windows + stats.backoff == sparse,
		    "%lu windows and %lu skipped faults should together be %lu",
		    stats.windows, stats.backoff, sparse);

	/*
	 * Dense again: 64 faults are skipped, then the window grows.  A busy host
	 * cuts windows short: if it does that to the first or the second one, as
	 * many are skipped again.
	 */
	limit = 3 * 64 + 10 + (PVM_SPAN - sparse) / pvm.full_pages;
	stats = pvm_load_range(sparse, PVM_SPAN - sparse);
	pvm_expect_patterns(PVM_SPAN - sparse);
	TEST_ASSERT(stats.backoff <= 3 * 64, "At most 3 * 64 faults should be skipped, not %lu",
		    stats.backoff);
	TEST_ASSERT(pvm_nr_faults(&stats) <= limit + PVM_FAULT_NOISE,
		    "%lu dense pages should take %lu faults at most, took %lu",
		    PVM_SPAN - sparse, limit, pvm_nr_faults(&stats));

	/* FIXED windows are not skipped. */
	prefault_uffd_stop(uffd);
	prefault_uffd_free(uffd);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	prefault_unmap_guest(dense, (PVM_SPAN - sparse) * pvm.page_size);
	kvm_madvise(dense, (PVM_SPAN - sparse) * pvm.page_size, MADV_DONTNEED);
	stats = pvm_load_range(sparse, pvm.full_pages);
	TEST_ASSERT(stats.windows == pvm.full_pages && !stats.backoff,
		    "%lu faults should each have a window, %lu have, %lu were skipped",
		    pvm.full_pages, stats.windows, stats.backoff);
}

/* Secret memory, which GUP refuses, stays secret next to ordinary memory. */
TEST_F_TIMEOUT(auto_prefault, secret_memory, PVM_TIMEOUT_SECONDS)
{
	const u64 ordinary = 8, secret = 8;
	int fd = syscall(__NR_memfd_secret, 0);
	struct prefault_stats stats;
	void *hva;

	if (fd < 0)
		SKIP(return, "No memfd_secret()");

	TEST_ASSERT(!ftruncate(fd, secret * pvm.page_size), "ftruncate() failed");
	hva = pvm_mmap(ordinary + secret, 0);
	kvm_munmap(pvm_page(hva, ordinary), secret * pvm.page_size);
	TEST_ASSERT(mmap(pvm_page(hva, ordinary), secret * pvm.page_size,
			 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED,
		    "mmap() failed");
	pvm_fill(hva, 0, ordinary + secret);

	pvm_create(1);
	pvm_set_slot(PVM_SLOT, 0, 0, ordinary + secret, hva);
	vm_set_prefault(pvm.vm, (ordinary + secret) * pvm.page_size, FIXED);

	stats = pvm_load_page(0);
	TEST_ASSERT(stats.windows == 1 && stats.mapped == ordinary - 1,
		    "Expected one window with %lu pages, got %lu with %lu", ordinary - 1,
		    stats.windows, stats.mapped);
}

/* A snapshot that is mapped privately: the guest's stores are the VM's own. */
TEST_F_TIMEOUT(auto_prefault, private_file, PVM_TIMEOUT_SECONDS)
{
	const u64 touched = 7, own = 100, host = 200, punched = 300;
	int fd = kvm_memfd_alloc(pvm.full_size, false);
	struct prefault_stats stats;
	void *file, *hva;
	u64 i, want;

	if (pvm.full_pages < 512)
		SKIP(return, "Needs a window of 512 pages");

	file = kvm_mmap(pvm.full_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	pvm_fill(file, 0, pvm.full_pages);
	hva = prefault_mmap(pvm.full_size, 0, MAP_PRIVATE, fd);
	kvm_madvise(hva, pvm.full_size, MADV_POPULATE_READ);

	pvm_create(1);
	pvm_set_slot(PVM_SLOT, 0, 0, pvm.full_pages, hva);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);

	/* A load maps what the host has, read-only as it has it. */
	stats = pvm_load_page(touched);
	TEST_ASSERT(stats.windows == 1 && stats.mapped == pvm.full_pages - 1,
		    "Expected one window with %lu pages, got %lu with %lu",
		    pvm.full_pages - 1, stats.windows, stats.mapped);
	pvm_expect_mapped(0, pvm.full_pages);
	pvm_expect_patterns(pvm.full_pages);

	/* The guest's own store, to a page that was prefaulted. */
	pvm_store_page(own, 1);
	pvm_load_range(0, pvm.full_pages);
	for (i = 0; i < pvm.full_pages; i++) {
		want = i == own ? pvm_stored(i, 1) : pvm_pattern(i);
		TEST_ASSERT(pvm.areas[0]->values[i] == want,
			    "Page %lu: after a store to page %lu it should be %lx, not %lx",
			    i, own, want, pvm.areas[0]->values[i]);
	}

	/* Userspace's store to another page, which it gets a copy of. */
	*pvm_word(hva, host) = 42;
	pvm_load_page(host);
	TEST_ASSERT(pvm.areas[0]->values[0] == 42,
		    "Page %lu: the guest reads %lx, the page that was there before", host,
		    pvm.areas[0]->values[0]);

	/* Pages that leave the file. */
	kvm_fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, punched * pvm.page_size,
		      8 * pvm.page_size);
	pvm_load_range(punched, 8);
	for (i = 0; i < 8; i++)
		TEST_ASSERT(!pvm.areas[0]->values[i],
			    "Page %lu was taken out of the file, the guest reads %lx",
			    punched + i, pvm.areas[0]->values[i]);
	pvm_fill(pvm_page(file, punched), punched, 8);

	/* A store maps what can be written: the two pages that are copies. */
	prefault_unmap_guest(hva, pvm.full_size);
	stats = pvm_store_page(touched, 2);
	TEST_ASSERT(stats.windows == 1 && stats.mapped <= 2,
		    "Expected one window with 2 pages at most, got %lu with %lu",
		    stats.windows, stats.mapped);

	/* Stores to all of it. */
	prefault_unmap_guest(hva, pvm.full_size);
	pvm.areas[0]->value = 2;
	pvm_list_range(0, pvm.full_pages);
	prefault_shuffle(pvm.areas[0]->list, pvm.full_pages, &pvm.rng);
	pvm_run_list(PVM_STORE, pvm.full_pages);
	pvm_load_range(0, pvm.full_pages);
	for (i = 0; i < pvm.full_pages; i++) {
		TEST_ASSERT(pvm.areas[0]->values[i] == pvm_stored(i, 2),
			    "Page %lu: the guest's store is lost, it reads %lx", i,
			    pvm.areas[0]->values[i]);
		TEST_ASSERT(*pvm_word(file, i) == pvm_pattern(i),
			    "Page %lu of the file has changed to %lx", i, *pvm_word(file, i));
	}
}

/*
 * The guest may write to a prefaulted page later without asking, so that the
 * host has to take it for dirty from then on.  Where the first store to a page
 * that is logged looks the page up once more, that is when it becomes dirty.
 */
#ifdef __aarch64__
#define LOGGED_STORE_LOOKS_UP	true
#else
#define LOGGED_STORE_LOOKS_UP	false
#endif

static bool page_is_dirty(int pagemap, int kpageflags, void *hva)
{
	u64 entry, flags;

	TEST_ASSERT(pread(pagemap, &entry, sizeof(entry),
			  (u64)hva / pvm.page_size * sizeof(entry)) == sizeof(entry) &&
		    entry & BIT_ULL(63), "Page at %p is not present", hva);
	entry &= BIT_ULL(55) - 1;
	TEST_ASSERT(pread(kpageflags, &flags, sizeof(flags),
			  entry * sizeof(flags)) == sizeof(flags),
		    "Cannot read the flags of page frame %lx", entry);
	return flags & BIT_ULL(4);
}

static void expect_folios_dirty(u32 flags, int pagemap, int kpageflags)
{
	u64 i, clean = 0;
	void *hva;

	pvm_create(1);
	hva = pvm_add_memory(flags, pvm.full_pages);
	for (i = 0; i < pvm.full_pages; i++)
		clean += !page_is_dirty(pagemap, kpageflags, pvm_page(hva, i));
	TEST_ASSERT(clean == pvm.full_pages, "%lu pages of %lu are clean", clean, pvm.full_pages);

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	pvm_expect_window(hva, pvm.full_size, 3, pvm.full_pages - 1);
	if (flags & KVM_MEM_LOG_DIRTY_PAGES && LOGGED_STORE_LOOKS_UP) {
		pvm_list_range(0, pvm.full_pages);
		pvm_run_list(PVM_STORE, pvm.full_pages);
	}
	for (i = 0; i < pvm.full_pages; i++)
		TEST_ASSERT(page_is_dirty(pagemap, kpageflags, pvm_page(hva, i)),
			    "Page %lu can be written by the guest, but the host has it clean",
			    i);
}

TEST_F_TIMEOUT(auto_prefault, folio_dirty, PVM_TIMEOUT_SECONDS)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	int kpageflags = open("/proc/kpageflags", O_RDONLY);

	if (pagemap < 0 || kpageflags < 0)
		SKIP(return, "No access to page flags");

	expect_folios_dirty(0, pagemap, kpageflags);
	expect_folios_dirty(KVM_MEM_LOG_DIRTY_PAGES, pagemap, kpageflags);
}

int main(int argc, char *argv[])
{
	pvm_require();
	return test_harness_run(argc, argv);
}
