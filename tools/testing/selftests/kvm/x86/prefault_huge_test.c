// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_CAP_AUTO_PREFAULT with windows that are larger than a huge page
 *
 * A fault that KVM fixes with a huge page maps the huge pages around it.  The
 * memory under test is that of prefault_vm.h, made of transparent huge pages.
 */
#include <linux/bitmap.h>

#include "kvm_test_harness.h"
#include "prefault_vm.h"
#include "processor.h"

#define FIXED		KVM_AUTO_PREFAULT_FIXED

#define HUGE_PAGES	PREFAULT_PAGES_MAX
#define HUGE_SIZE	((u64)HUGE_PAGES * PAGE_SIZE)
#define NR_HUGE		(PVM_SPAN / HUGE_PAGES)
#define SPAN_SIZE	(NR_HUGE * HUGE_SIZE)

/* A page of huge page @huge: any will do. */
static u64 page_of(u64 huge)
{
	return huge * HUGE_PAGES + pvm_random(HUGE_PAGES);
}

/* The huge pages that KVM has mapped. */
static u64 nr_mapped(void)
{
	return vm_get_stat(pvm.vm, pages_2m);
}

/* @offset pages behind the start of a huge page. */
static void *huge_mmap(u64 first, u64 nr, u64 offset)
{
	void *hva = pvm_mmap(nr, offset);

	pvm_fill(hva, first, nr);
	prefault_make_huge(hva, nr * PAGE_SIZE);
	return hva;
}

static void *add_huge_memory(u32 flags)
{
	void *hva = huge_mmap(0, PVM_SPAN, 0);

	pvm_set_slot(PVM_SLOT, flags, 0, PVM_SPAN, hva);
	return hva;
}

/* All is unmapped; the window of @page maps exactly @want other huge pages. */
static void expect_huge(void *hva, u64 page, u64 want)
{
	pvm_expect_window(hva, SPAN_SIZE, page, want * HUGE_PAGES);
	TEST_ASSERT(nr_mapped() == want + 1, "%lu huge pages should be mapped, %lu are",
		    want + 1, nr_mapped());
}

/* [first, first + nr) needs no fault, and has what it should. */
static void expect_huge_contents(u64 first, u64 nr)
{
	pvm_expect_mapped(first * HUGE_PAGES, nr * HUGE_PAGES);
	pvm_expect_patterns(nr * HUGE_PAGES);
}

FIXTURE(prefault_huge) { int unused; };
FIXTURE_TEARDOWN(prefault_huge) { pvm_tear_down(); }

FIXTURE_SETUP(prefault_huge)
{
	if (!thp_configured())
		SKIP(return, "No transparent huge pages");
	pvm_set_up();
}

/* Loads every page, in any order, with windows of @per_window huge pages. */
static void expect_faults(void *hva, u64 per_window)
{
	const u64 faults = NR_HUGE / per_window;
	struct prefault_stats stats;
	int tries;

	for (tries = 0; tries < 5; tries++) {
		prefault_unmap_guest(hva, SPAN_SIZE);
		pvm_list_range(0, PVM_SPAN);
		prefault_shuffle(pvm.areas[0]->list, PVM_SPAN, &pvm.rng);
		stats = pvm_run_list(PVM_LOAD, PVM_SPAN);
		pvm_expect_patterns(PVM_SPAN);

		TEST_ASSERT(nr_mapped() == NR_HUGE, "%u huge pages should be mapped, %lu are",
			    NR_HUGE, nr_mapped());
		TEST_ASSERT(stats.pf_taken >= faults &&
			    stats.mapped == PVM_SPAN - stats.pf_taken * HUGE_PAGES,
			    "%lu huge pages should be faulted in, took %lu faults, %lu pages are mapped ahead",
			    faults, stats.pf_taken, stats.mapped);
		if (stats.pf_taken == faults)
			return;
	}
	TEST_FAIL("Windows of %lu huge pages: expected %lu faults, took %lu", per_window, faults,
		  stats.pf_taken);
}

/* One fault for each window, and none of them for a store. */
TEST_F_TIMEOUT(prefault_huge, faults, PVM_TIMEOUT_SECONDS)
{
	struct prefault_stats stats;
	u64 per_window, i;
	void *hva;

	pvm_create(1);
	hva = add_huge_memory(0);

	for (per_window = 1; per_window <= NR_HUGE; per_window *= 2) {
		vm_set_prefault(pvm.vm, per_window * HUGE_SIZE, FIXED);
		expect_faults(hva, per_window);
		vm_set_prefault(pvm.vm, per_window * HUGE_SIZE, 0);
		expect_faults(hva, per_window);
	}

	/* No part of a huge page is served. */
	vm_set_prefault(pvm.vm, HUGE_SIZE / 2, FIXED);
	prefault_unmap_guest(hva, SPAN_SIZE);
	stats = pvm_load_range(0, PVM_SPAN);
	TEST_ASSERT(stats.pf_taken == NR_HUGE && !stats.windows,
		    "Expected %u faults and no window, got %lu and %lu", NR_HUGE,
		    stats.pf_taken, stats.windows);

	vm_set_prefault(pvm.vm, SPAN_SIZE, FIXED);
	expect_huge(hva, page_of(3), NR_HUGE - 1);
	for (i = 0; i < PVM_SPAN; i += HUGE_PAGES / 4 + 1) {
		stats = pvm_store_page(i, i);
		TEST_ASSERT(!stats.pf_taken, "Page %lu should be writable", i);
		TEST_ASSERT(*pvm_word(hva, i) == pvm_stored(i, i), "Page %lu: a store is lost", i);
	}
}

/* Nothing in the window's other half, which is mapped page by page, either. */
TEST_F_TIMEOUT(prefault_huge, exact_window, PVM_TIMEOUT_SECONDS)
{
	void *hva;

	pvm_create(1);
	hva = add_huge_memory(0);
	vm_set_prefault(pvm.vm, 4 * HUGE_SIZE, FIXED);

	expect_huge(hva, page_of(6), 3);
	expect_huge_contents(4, 4);
	TEST_ASSERT(pvm_load_page(page_of(3)).windows == 1,
		    "What lies before the window should not be mapped");
}

/* A huge page that the memslot has only a part of stays as small as it is. */
TEST_F_TIMEOUT(prefault_huge, memslot_edges, PVM_TIMEOUT_SECONDS)
{
	const u64 first = 5, nr = PVM_SPAN - first - 7;
	struct prefault_stats stats;
	void *hva;

	pvm_create(1);
	hva = huge_mmap(first, nr, first);
	pvm_set_slot(PVM_SLOT, 0, first, nr, hva);
	vm_set_prefault(pvm.vm, SPAN_SIZE, FIXED);

	pvm_expect_window(hva, nr * PAGE_SIZE, page_of(4), (NR_HUGE - 3) * HUGE_PAGES);
	TEST_ASSERT(nr_mapped() == NR_HUGE - 2, "%u huge pages should be mapped, %lu are",
		    NR_HUGE - 2, nr_mapped());
	expect_huge_contents(1, NR_HUGE - 2);

	stats = pvm_load_range(first, nr);
	pvm_expect_patterns(nr);
	TEST_ASSERT(stats.windows >= 2 && nr_mapped() == NR_HUGE - 2,
		    "The edges should be mapped by pages in 2 windows, took %lu; %lu huge pages",
		    stats.windows, nr_mapped());
}

/* Huge pages of the host that are not aligned for the guest. */
TEST_F_TIMEOUT(prefault_huge, not_aligned, PVM_TIMEOUT_SECONDS)
{
	struct prefault_stats stats;
	void *hva;

	pvm_create(1);
	hva = huge_mmap(0, PVM_SPAN, 1);
	pvm_set_slot(PVM_SLOT, 0, 0, PVM_SPAN, hva);
	vm_set_prefault(pvm.vm, SPAN_SIZE, FIXED);

	stats = pvm_load_range(0, PVM_SPAN);
	pvm_expect_patterns(PVM_SPAN);
	TEST_ASSERT(stats.windows >= NR_HUGE && !nr_mapped(),
		    "Expected %u windows and no huge page, got %lu and %lu", NR_HUGE,
		    stats.windows, nr_mapped());
}

/* What the host does not have, or has in pages, is left out, and stays that. */
TEST_F_TIMEOUT(prefault_huge, host, PVM_TIMEOUT_SECONDS)
{
	const u64 absent = 2, split = 5, resident = PVM_SPAN - HUGE_PAGES - 1;
	void *hva;

	pvm_create(1);
	hva = add_huge_memory(0);
	kvm_madvise(hva + absent * HUGE_SIZE, HUGE_SIZE, MADV_DONTNEED);
	kvm_madvise(hva + split * HUGE_SIZE, PAGE_SIZE, MADV_DONTNEED);
	vm_set_prefault(pvm.vm, SPAN_SIZE, FIXED);

	expect_huge(hva, page_of(7), NR_HUGE - 3);
	TEST_ASSERT(prefault_count_resident(hva, SPAN_SIZE) == resident,
		    "%lu pages were resident, now %lu are", resident,
		    prefault_count_resident(hva, SPAN_SIZE));

	/* The split one is served by a window of pages. */
	TEST_ASSERT(pvm_load_page(split * HUGE_PAGES + 1).mapped == HUGE_PAGES - 2 &&
		    nr_mapped() == NR_HUGE - 2,
		    "Huge page %lu should be mapped by its pages", split);
}

/* There are no huge pages while dirty pages are tracked, and no page is dirty. */
TEST_F_TIMEOUT(prefault_huge, logged, PVM_TIMEOUT_SECONDS)
{
	unsigned long *bitmap = bitmap_zalloc(PVM_SPAN);
	u64 i;
	void *hva;

	pvm_create(1);
	hva = add_huge_memory(0);
	vm_set_prefault(pvm.vm, SPAN_SIZE, FIXED);
	expect_huge(hva, page_of(1), NR_HUGE - 1);

	pvm_set_slot(PVM_SLOT, KVM_MEM_LOG_DIRTY_PAGES, 0, PVM_SPAN, hva);
	pvm_expect_window(hva, SPAN_SIZE, page_of(3), HUGE_PAGES - 1);
	TEST_ASSERT(!nr_mapped(), "%lu huge pages are mapped", nr_mapped());

	/* A load of a page that can be written has always been logged. */
	kvm_vm_get_dirty_log(pvm.vm, PVM_SLOT, bitmap);
	pvm_store_page(page_of(3), 1);
	kvm_vm_get_dirty_log(pvm.vm, PVM_SLOT, bitmap);
	for (i = 0; i < PVM_SPAN; i++)
		TEST_ASSERT(test_bit(i, bitmap) == (*pvm_word(hva, i) != pvm_pattern(i)),
			    "Page %lu is%s dirty", i, test_bit(i, bitmap) ? "" : " not");

	/* KVM has tables there now, which only faults replace. */
	pvm_set_slot(PVM_SLOT, 0, 0, PVM_SPAN, hva);
	pvm_load_range(0, PVM_SPAN);
	expect_huge(hva, page_of(0), NR_HUGE - 1);
	free(bitmap);
}

/* Stores are left to userspace, and change nothing. */
TEST_F_TIMEOUT(prefault_huge, readonly_memslot, PVM_TIMEOUT_SECONDS)
{
	u64 page, huge;
	void *hva;

	pvm_create(1);
	hva = add_huge_memory(KVM_MEM_READONLY);
	vm_set_prefault(pvm.vm, SPAN_SIZE, FIXED);
	expect_huge(hva, page_of(2), NR_HUGE - 1);
	expect_huge_contents(0, NR_HUGE);

	for (huge = 0; huge < NR_HUGE; huge++) {
		page = page_of(huge);
		pvm_store_page(page, 1);
		TEST_ASSERT(pvm.nr_mmio_writes == huge + 1 &&
			    *pvm_word(hva, page) == pvm_pattern(page),
			    "A store to page %lu should be left to userspace", page);
	}
}

static void set_private(u64 first, u64 nr, bool private)
{
	vm_set_memory_attributes(pvm.vm, PREFAULT_GPA + first * PAGE_SIZE, nr * PAGE_SIZE,
				 private ? KVM_MEMORY_ATTRIBUTE_PRIVATE : 0);
}

/* Private memory is not mapped, nor is what has some of it. */
TEST_F_TIMEOUT(prefault_huge, private_memory, PVM_TIMEOUT_SECONDS)
{
	const u64 mixed = 2, private = 5;
	void *hva;
	int fd;

	if (!(kvm_check_cap(KVM_CAP_VM_TYPES) & BIT(KVM_X86_SW_PROTECTED_VM)))
		SKIP(return, "No software-protected VMs");

	pvm_create_type(KVM_X86_SW_PROTECTED_VM, 0, 1);
	hva = huge_mmap(0, PVM_SPAN, 0);
	fd = vm_create_guest_memfd(pvm.vm, SPAN_SIZE, 0);
	vm_set_user_memory_region2(pvm.vm, PVM_SLOT, KVM_MEM_GUEST_MEMFD, PREFAULT_GPA,
				   SPAN_SIZE, hva, fd, 0);
	set_private(mixed * HUGE_PAGES + 7, 1, true);
	set_private(private * HUGE_PAGES, HUGE_PAGES, true);
	vm_set_prefault(pvm.vm, SPAN_SIZE, FIXED);

	expect_huge(hva, page_of(0), NR_HUGE - 3);
	expect_huge_contents(0, mixed);
	expect_huge_contents(mixed + 1, private - mixed - 1);
	expect_huge_contents(private + 1, NR_HUGE - private - 1);

	/* What the guest finds in private memory is zero. */
	pvm_load_page(mixed * HUGE_PAGES + 7);
	TEST_ASSERT(!pvm.areas[0]->values[0], "The private page should be empty");
	pvm_load_page(private * HUGE_PAGES + 7);
	TEST_ASSERT(!pvm.areas[0]->values[0], "The private huge page should be empty");

	/* It becomes shared, but KVM has tables there, which only a fault replaces. */
	set_private(0, PVM_SPAN, false);
	expect_huge(hva, page_of(0), NR_HUGE - 3);
	pvm_load_page(page_of(mixed));
	pvm_load_page(page_of(private));
	TEST_ASSERT(nr_mapped() == NR_HUGE, "%u huge pages should be mapped, %lu are", NR_HUGE,
		    nr_mapped());
	expect_huge_contents(0, NR_HUGE);
}

#define RACE_SECONDS	5
#define RACE_PAGES	8

/* The pages at either end of a huge page. */
static void fill_ends(void *hva, u64 value)
{
	u64 i;

	for (i = 0; i < RACE_PAGES; i++)
		*pvm_word(hva, i) = *pvm_word(hva, HUGE_PAGES - 1 - i) = value;
}

static void move_huge(void *from, void *to, int flags)
{
	TEST_ASSERT(mremap(from, HUGE_SIZE, HUGE_SIZE, flags | MREMAP_MAYMOVE | MREMAP_FIXED,
			   to) == to, __KVM_SYSCALL_ERROR("mremap()", -1));
}

/*
 * Huge pages are replaced by others while a fault on their neighbour is about to
 * map them.  The guest may not see what was there before, nor what that page is
 * used for after.
 *
 * Watched are the pages at either side of where two huge pages meet.
 */
TEST_F_TIMEOUT(prefault_huge, race, PVM_TIMEOUT_SECONDS)
{
	void *hva, *huge, *spare[2];
	struct timespec start;
	u64 first, i, round = 0;
	int second;

	pvm_create(1);
	hva = pvm_mmap(PVM_SPAN, 0);
	memset(hva, 0, SPAN_SIZE);
	prefault_make_huge(hva, SPAN_SIZE);
	pvm_set_slot(PVM_SLOT, 0, 0, PVM_SPAN, hva);
	vm_set_prefault(pvm.vm, SPAN_SIZE, FIXED);

	/* The one that is next, and a place for the one that it replaces. */
	spare[0] = pvm_mmap(2 * HUGE_PAGES, 0);
	spare[1] = spare[0] + HUGE_SIZE;
	memset(spare[0], 0, HUGE_SIZE);
	prefault_make_huge(spare[0], HUGE_SIZE);

	pvm_start_vcpus(PVM_WATCH, PVM_SEQ, 2 * HUGE_PAGES - RACE_PAGES, 2 * RACE_PAGES);
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (; timespec_elapsed(start).tv_sec < RACE_SECONDS; round++) {
		second = pvm_random(2);
		huge = hva + (1 + second) * HUGE_SIZE;
		first = 2 * HUGE_PAGES - !second * RACE_PAGES;

		fill_ends(spare[round % 2], pvm.areas[0]->seq[first] + 2);
		pvm_next_step(first, RACE_PAGES);

		/* It is soon mapped again, while the one here is replaced. */
		prefault_unmap_guest(hva, SPAN_SIZE);
		for (i = pvm_random(1000); i; i--)
			barrier();
		move_huge(huge, spare[!(round % 2)], MREMAP_DONTUNMAP);
		move_huge(spare[round % 2], huge, 0);
		fill_ends(spare[!(round % 2)], ~0ull);
		pvm_next_step(first, RACE_PAGES);
	}
	pr_info("%lu huge pages were replaced\n", round);
	pvm_wait_for_passes(2);
	pvm_stop_vcpus();
	pvm_expect_watched();
}

int main(int argc, char *argv[])
{
	pvm_require();
	return test_harness_run(argc, argv);
}
