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

/*
 * Discards pages, whose content becomes zero or what is in the file, and then
 * writes the next step to them.  No page of the guest may show anything older
 * afterwards: neither the discarded page nor what was there in between.
 */
TEST_F_TIMEOUT(prefault_discard, race, PVM_TIMEOUT_SECONDS)
{
	const int flags[] = {
		[ANONYMOUS] = MAP_PRIVATE | MAP_ANONYMOUS,
		[SHARED] = MAP_SHARED,
		[PRIVATE_FILE] = MAP_PRIVATE,
	};
	const u64 nr_pages = 2 * pvm.full_pages, size = nr_pages * pvm.page_size;
	u64 i, round, first, nr;
	int fd = -1;
	void *hva;

	pvm_create(PVM_MAX_VCPUS);
	if (variant->backing != ANONYMOUS)
		fd = kvm_memfd_alloc(size, false);
	hva = prefault_mmap(size, 0, flags[variant->backing], fd);
	if (variant->backing == PRIVATE_FILE)
		kvm_madvise(hva, size, MADV_POPULATE_READ);
	pvm_set_slot(PVM_SLOT, 0, 0, nr_pages, hva);
	vm_set_prefault(pvm.vm, pvm.full_size, variant->flags);

	pvm_start_vcpus(PVM_WATCH, PVM_SEQ, 0, nr_pages);
	for (round = 0; round < 1500; round++) {
		first = pvm_random(nr_pages);
		nr = min(1 + pvm_random(32), nr_pages - first);

		pvm_next_step(first, nr);
		if (variant->backing == SHARED)
			kvm_fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				      first * pvm.page_size, nr * pvm.page_size);
		else
			kvm_madvise(pvm_page(hva, first), nr * pvm.page_size, MADV_DONTNEED);
		if (round % 2)
			usleep(pvm_random(200));
		for (i = first; i < first + nr; i++)
			*pvm_word(hva, i) = pvm.areas[0]->seq[i] + 1;
		pvm_next_step(first, nr);
	}
	pvm_wait_for_passes(2);
	pvm_stop_vcpus();

	pvm_expect_watched();
	for (i = 0; i < nr_pages; i++)
		TEST_ASSERT(*pvm_word(hva, i) == pvm.areas[0]->seq[i],
			    "Page %lu: the test is wrong", i);
}

/* The memslot is deleted, and comes back with other memory. */
TEST_F_TIMEOUT(prefault_race, memslot_deleted, PVM_TIMEOUT_SECONDS)
{
	void *hva[2] = { pvm_mmap(pvm.full_pages, 0), pvm_mmap(pvm.full_pages, 1) };
	u64 i, round;

	pvm_create(PVM_MAX_VCPUS);
	pvm_set_slot(PVM_SLOT, 0, 0, pvm.full_pages, hva[0]);
	memset(hva[0], 0, pvm.full_size);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);

	pvm_start_vcpus(PVM_WATCH, PVM_SEQ, 0, pvm.full_pages);
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
TEST_F_TIMEOUT(prefault_race, memslot_moved, PVM_TIMEOUT_SECONDS)
{
	void *hva = pvm_mmap(pvm.full_pages, 0);
	u64 round;

	pvm_create(PVM_MAX_VCPUS);
	pvm_fill(hva, 0, pvm.full_pages);
	pvm_set_slot(PVM_SLOT, 0, 0, pvm.full_pages, hva);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);

	/* Pages that are there in either place. */
	pvm_start_vcpus(PVM_WATCH, PVM_MOVED, 1, pvm.full_pages - 1);
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

/* Every page that is looked up is let go, whether it was mapped or not. */
TEST_F_TIMEOUT(prefault_race, page_references, PVM_TIMEOUT_SECONDS)
{
	const u64 size = PVM_SPAN * pvm.page_size;
	u64 round, before = 0, after;
	void *hva;

	pvm_create(PVM_MAX_VCPUS);
	hva = pvm_add_memory(0, PVM_SPAN);
	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);

	for (round = 0; round < 10; round++) {
		pvm_fill(hva, 0, PVM_SPAN);
		/* Two vCPUs want to map the same pages: one of them is late. */
		pvm_start_vcpus(PVM_WATCH, PVM_PATTERN, 0, PVM_SPAN);
		pvm_wait_for_passes(1);
		pvm_stop_vcpus();
		kvm_madvise(hva, size, MADV_DONTNEED);
		if (!round)
			before = free_memory();
	}
	after = free_memory();
	TEST_ASSERT(after + size / 4 > before,
		    "%lu bytes of memory are gone after %lu rounds with %lu bytes",
		    before - after, round, size);
}

int main(int argc, char *argv[])
{
	pvm_require();
	return test_harness_run(argc, argv);
}
