// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_CAP_AUTO_PREFAULT while memory, memslots and the window itself change
 *
 * Two vCPUs go through the memory all the time and check every value, while
 * userspace takes pages away, replaces memslots or changes the window.
 */
#include <linux/falloc.h>

#include "kvm_test_harness.h"
#include "prefault_vm.h"

#define FIXED	KVM_AUTO_PREFAULT_FIXED

FIXTURE(prefault_race) { int unused; };
FIXTURE_SETUP(prefault_race) { pvm_set_up(); }
FIXTURE_TEARDOWN(prefault_race) { pvm_tear_down(); }

/* The window changes at any time, and each fault uses what is set at its time. */
TEST_F_TIMEOUT(prefault_race, window_changes, PVM_TIMEOUT_SECONDS)
{
	struct prefault_stats start, end;
	u64 round, size, windows;
	void *hva;

	pvm_create(PVM_MAX_VCPUS);
	hva = pvm_add_memory(0, PVM_SPAN);

	pvm_start_vcpus(PVM_WATCH, PVM_PATTERN, 0, PVM_SPAN);
	for (round = 0; round < 300; round++) {
		size = pvm.page_size << pvm_random(ilog2(pvm.max_size / pvm.page_size) + 1);
		if (size == pvm.page_size)
			size = 0;
		vm_set_prefault(pvm.vm, size, pvm_random(2) ? FIXED : 0);
		prefault_unmap_guest(pvm_page(hva, pvm_random(PVM_SPAN / 64) * 64),
				     64 * pvm.page_size);
		usleep(pvm_random(500));
	}
	windows = pvm_sum_of_windows();
	TEST_ASSERT(windows, "There should have been windows");

	/* Faults that had begun may still use the old window: let them end. */
	vm_set_prefault(pvm.vm, 0, 0);
	pvm_wait_for_passes(2);
	windows = pvm_sum_of_windows();
	prefault_read_stats(pvm.vcpus[0], &start);
	prefault_unmap_guest(hva, PVM_SPAN * pvm.page_size);
	pvm_wait_for_passes(2);
	prefault_read_stats(pvm.vcpus[0], &end);
	TEST_ASSERT(end.exits - start.exits > PVM_SPAN / 8, "The guest should have faulted");
	TEST_ASSERT(pvm_sum_of_windows() == windows, "Off, but there were %lu windows",
		    pvm_sum_of_windows() - windows);

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	prefault_unmap_guest(hva, PVM_SPAN * pvm.page_size);
	pvm_wait_for_passes(2);
	TEST_ASSERT(pvm_sum_of_windows() > windows, "On again, but there were no windows");
	pvm_stop_vcpus();
}

enum backing {
	ANONYMOUS,
	SHARED,
	PRIVATE_FILE,
};

FIXTURE(prefault_discard) { int unused; };
FIXTURE_SETUP(prefault_discard) { pvm_set_up(); }
FIXTURE_TEARDOWN(prefault_discard) { pvm_tear_down(); }

FIXTURE_VARIANT(prefault_discard) {
	enum backing backing;
	u64 flags;
};

FIXTURE_VARIANT_ADD(prefault_discard, anonymous) { ANONYMOUS, FIXED };
FIXTURE_VARIANT_ADD(prefault_discard, anonymous_adaptive) { ANONYMOUS, 0 };
FIXTURE_VARIANT_ADD(prefault_discard, shared) { SHARED, FIXED };
FIXTURE_VARIANT_ADD(prefault_discard, private_file) { PRIVATE_FILE, FIXED };

#define DISCARD_PAGES	16
#define DISCARD_SECONDS	3

/*
 * Discards a page, whose content becomes zero or what is in the file, and then
 * writes the next step to it.  No page of the guest may show anything older
 * afterwards: neither the discarded page nor what was there in between.
 *
 * There are few pages, so that all the time one is discarded while a fault on
 * another one is about to map it, too; and one vCPU, so that it never waits for
 * a processor.
 */
TEST_F_TIMEOUT(prefault_discard, race, PVM_TIMEOUT_SECONDS)
{
	const int flags[] = {
		[ANONYMOUS] = MAP_PRIVATE | MAP_ANONYMOUS,
		[SHARED] = MAP_SHARED,
		[PRIVATE_FILE] = MAP_PRIVATE,
	};
	const u64 size = DISCARD_PAGES * pvm.page_size;
	struct timespec start;
	int fd = -1;
	void *hva;
	u64 page;

	pvm_create(1);
	if (variant->backing != ANONYMOUS)
		fd = kvm_memfd_alloc(size, false);
	hva = prefault_mmap(size, 0, flags[variant->backing], fd);
	if (variant->backing == PRIVATE_FILE)
		kvm_madvise(hva, size, MADV_POPULATE_READ);
	pvm_set_slot(PVM_SLOT, 0, 0, DISCARD_PAGES, hva);
	vm_set_prefault(pvm.vm, pvm.full_size, variant->flags);

	pvm_start_vcpus(PVM_WATCH, PVM_SEQ, 0, DISCARD_PAGES);
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (timespec_elapsed(start).tv_sec < DISCARD_SECONDS) {
		page = pvm_random(DISCARD_PAGES);

		pvm_next_step(page, 1);
		if (variant->backing == SHARED)
			kvm_fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				      page * pvm.page_size, pvm.page_size);
		else
			kvm_madvise(pvm_page(hva, page), pvm.page_size, MADV_DONTNEED);
		*pvm_word(hva, page) = pvm.areas[0]->seq[page] + 1;
		pvm_next_step(page, 1);
	}
	pvm_wait_for_passes(2);
	pvm_stop_vcpus();
	pvm_expect_watched();
}

FIXTURE(prefault_memslot) { int unused; };
FIXTURE_SETUP(prefault_memslot) { pvm_set_up(); }
FIXTURE_TEARDOWN(prefault_memslot) { pvm_tear_down(); }

FIXTURE_VARIANT(prefault_memslot) {
	u64 disabled_quirks;
};

FIXTURE_VARIANT_ADD(prefault_memslot, as_is) { .disabled_quirks = 0 };
#ifdef __x86_64__
/* Nothing but the memslot is unmapped, and roots stay as they are. */
FIXTURE_VARIANT_ADD(prefault_memslot, zap_slot_only) {
	.disabled_quirks = KVM_X86_QUIRK_SLOT_ZAP_ALL
};
#endif

static void watch_memslot(u64 disabled_quirks, void *hva, enum pvm_rule rule,
			  u64 first, u64 nr)
{
	pvm_create(PVM_MAX_VCPUS);
	if (disabled_quirks)
		vm_enable_cap(pvm.vm, KVM_CAP_DISABLE_QUIRKS2, disabled_quirks);
	pvm_set_slot(PVM_SLOT, 0, 0, pvm.full_pages, hva);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);

	pvm_start_vcpus(PVM_WATCH, rule, first, nr);
}

/* The memslot is deleted, and comes back with other memory. */
TEST_F_TIMEOUT(prefault_memslot, deleted, PVM_TIMEOUT_SECONDS)
{
	void *hva[2] = { pvm_mmap(pvm.full_pages, 0), pvm_mmap(pvm.full_pages, 1) };
	u64 i, round;

	memset(hva[0], 0, pvm.full_size);
	watch_memslot(variant->disabled_quirks, hva[0], PVM_SEQ, 0, pvm.full_pages);

	for (round = 1; round <= 40; round++) {
		pvm_wait_for_passes(round % 4 == 0);

		pvm_next_step(0, pvm.full_pages);
		pvm_set_slot(PVM_SLOT, 0, 0, 0, NULL);
		for (i = 0; i < pvm.full_pages; i++)
			*pvm_word(hva[round % 2], i) = 2 * round;
		pvm_set_slot(PVM_SLOT, 0, 0, pvm.full_pages, hva[round % 2]);
		pvm_next_step(0, pvm.full_pages);
	}
	pvm_wait_for_passes(2);
	pvm_stop_vcpus();
	pvm_expect_watched();
}

/* The memslot is moved by one page, and back. */
TEST_F_TIMEOUT(prefault_memslot, moved, PVM_TIMEOUT_SECONDS)
{
	void *hva = pvm_mmap(pvm.full_pages, 0);
	u64 round;

	/* Pages that are there in either place. */
	pvm_fill(hva, 0, pvm.full_pages);
	watch_memslot(variant->disabled_quirks, hva, PVM_MOVED, 1, pvm.full_pages - 1);

	for (round = 1; round <= 40; round++) {
		pvm_wait_for_passes(round % 4 == 0);

		pvm_next_step(0, pvm.full_pages);
		pvm_set_slot(PVM_SLOT, 0, round % 2, pvm.full_pages, hva);
		pvm_next_step(0, pvm.full_pages);
	}
	pvm_wait_for_passes(2);
	pvm_stop_vcpus();
	pvm_expect_watched();
}

static u64 free_memory(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[128];
	u64 kib = 0;

	TEST_ASSERT(f, "Cannot open /proc/meminfo");
	while (!kib && fgets(line, sizeof(line), f))
		sscanf(line, "MemFree: %lu", &kib);
	fclose(f);

	TEST_ASSERT(kib, "Cannot tell how much memory is free");
	return kib * 1024;
}

#define REFERENCE_ROUNDS	20

/*
 * Every page that is looked up is let go, whether it was mapped or not.  Free
 * memory comes and goes: only what is missing in all of the last rounds, as
 * compared to all of the first, is lost.
 */
TEST_F_TIMEOUT(prefault_race, page_references, PVM_TIMEOUT_SECONDS)
{
	const u64 size = PVM_SPAN * pvm.page_size;
	u64 round, before = -1ull, after = 0;
	void *hva;

	pvm_create(PVM_MAX_VCPUS);
	hva = pvm_add_memory(0, PVM_SPAN);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);

	for (round = 0; round < REFERENCE_ROUNDS; round++) {
		pvm_fill(hva, 0, PVM_SPAN);
		/* Two vCPUs want to map the same pages: one of them is late. */
		pvm_start_vcpus(PVM_WATCH, PVM_PATTERN, 0, PVM_SPAN);
		pvm_wait_for_passes(1);
		pvm_stop_vcpus();
		kvm_madvise(hva, size, MADV_DONTNEED);

		if (round < REFERENCE_ROUNDS / 4)
			before = min(before, free_memory());
		if (round >= REFERENCE_ROUNDS - REFERENCE_ROUNDS / 4)
			after = max(after, free_memory());
	}
	TEST_ASSERT(after + size > before,
		    "%lu bytes of memory are gone after %lu rounds with %lu bytes",
		    before - after, round, size);
}

int main(int argc, char *argv[])
{
	pvm_require();
	return test_harness_run(argc, argv);
}
