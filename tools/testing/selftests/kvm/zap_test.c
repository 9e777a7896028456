// SPDX-License-Identifier: GPL-2.0-only
/*
 * Invalidations leave nothing behind, whatever KVM remembers of empty tables
 *
 * The memslot is as large as what an entry two levels above the last one maps,
 * and the guest uses the beginning of it.  Ranges of all sizes are thrown away
 * and written again, several times, so that tables become empty and are used
 * again while the vCPUs check every value: a page that is missed by a zap, or by
 * write-protection, shows what it was.
 */
#include "kvm_test_harness.h"
#include "prefault_vm.h"

#define FIXED		KVM_AUTO_PREFAULT_FIXED
/* Entries of a table: pages of a last-level table, or of a huge page. */
#define TABLE_PAGES	(pvm.page_size / sizeof(u64))
#define SLOT_PAGES	(TABLE_PAGES * TABLE_PAGES)
/* Pages that have values: what the guest uses is among them. */
#define NR_VALUES	2048
#define SECONDS		3

static void *add_memory(void)
{
	void *hva = prefault_mmap(SLOT_PAGES * pvm.page_size, 0,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

	pvm_set_slot(PVM_SLOT, 0, 0, SLOT_PAGES, hva);
	return hva;
}

static void discard(void *hva, u64 first, u64 nr)
{
	kvm_madvise(pvm_page(hva, first), nr * pvm.page_size, MADV_DONTNEED);
}

/* The guest's part of [first, first + nr) gets new pages with the next values. */
static void rewrite(void *hva, u64 first, u64 nr, int advice)
{
	u64 used = min(nr, NR_VALUES - min(first, NR_VALUES)), page;

	pvm_next_step(first, used);
	/* The first one finds pages, or some, the second one nothing. */
	discard(hva, first, nr);
	if (pvm_random(2))
		discard(hva, first, nr);
	if (advice)
		kvm_madvise(pvm_page(hva, first), used * pvm.page_size, advice);
	for (page = first; page < first + used; page++)
		*pvm_word(hva, page) = pvm.areas[0]->seq[page] + 1;
	pvm_next_step(first, used);
}

static void expect_checked(void)
{
	u32 i;

	for (i = 0; i < pvm.nr_vcpus; i++)
		TEST_ASSERT(pvm.areas[i]->checked, "vCPU %u has not checked a page", i);
}

static void finish(void)
{
	pvm_wait_for_passes(2);
	pvm_stop_vcpus();
	expect_checked();
}

FIXTURE(zap) { int unused; };
FIXTURE_SETUP(zap) { pvm_set_up(); }
FIXTURE_TEARDOWN(zap) { pvm_tear_down(); }

/* What the guest uses, and the window. */
FIXTURE_VARIANT(zap) {
	u64 first;
	u64 nr;
	u64 window;
};

FIXTURE_VARIANT_ADD(zap, dense) { .first = 0, .nr = NR_VALUES };
FIXTURE_VARIANT_ADD(zap, one_page) { .first = 511, .nr = 1 };
FIXTURE_VARIANT_ADD(zap, two_tables) { .first = 1020, .nr = 8 };
FIXTURE_VARIANT_ADD(zap, prefault) { .first = 1000, .nr = 48, .window = 16 };

/* A range of any size that has something of [first, first + nr). */
static void random_range(u64 first, u64 nr, u64 *start, u64 *len)
{
	u64 page = first + pvm_random(nr);

	switch (pvm_random(6)) {
	case 0:
		*start = page;
		*len = 1;
		break;
	case 1:
		*start = first;
		*len = nr;
		break;
	case 2:
		/* From or to the middle of a table. */
		*start = page - pvm_random(min(page, TABLE_PAGES) + 1);
		*len = page + 1 + pvm_random(TABLE_PAGES) - *start;
		break;
	case 3:
		*start = 0;
		*len = SLOT_PAGES;
		break;
	default:
		*start = page - page % TABLE_PAGES;
		*len = TABLE_PAGES;
		break;
	}
	*len = min(*len, SLOT_PAGES - *start);
}

TEST_F_TIMEOUT(zap, race, PVM_TIMEOUT_SECONDS)
{
	struct timespec start;
	u64 first, nr;
	void *hva;

	pvm_create(PVM_MAX_VCPUS);
	hva = add_memory();
	rewrite(hva, 0, NR_VALUES, 0);
	if (variant->window)
		vm_set_prefault(pvm.vm, variant->window * pvm.page_size, FIXED);

	pvm_start_vcpus(PVM_WATCH, PVM_SEQ, variant->first, variant->nr);
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (timespec_elapsed(start).tv_sec < SECONDS) {
		random_range(variant->first, variant->nr, &first, &nr);
		rewrite(hva, first, nr, 0);
		/* Let pages be mapped, but not always, and not always all. */
		if (variant->nr <= 48)
			pvm_wait_for_passes(pvm_random(2));
		else
			usleep(pvm_random(20000));
	}
	finish();
}

FIXTURE(zap_one) { int unused; };
FIXTURE_SETUP(zap_one) { pvm_set_up(); }
FIXTURE_TEARDOWN(zap_one) { pvm_tear_down(); }

/*
 * The same without a race: all is thrown away, one page is used again, and that
 * is thrown away with a range of each size.
 */
TEST_F(zap_one, refault)
{
	const u64 page = 2 * TABLE_PAGES + 5;
	const struct { u64 first, nr; } ranges[] = {
		{ page, 1 }, { 2 * TABLE_PAGES, TABLE_PAGES }, { TABLE_PAGES, 3 * TABLE_PAGES },
		{ 0, SLOT_PAGES },
	};
	void *hva;
	u64 i, value;

	pvm_create(1);
	hva = add_memory();
	pvm_fill(hva, 0, 4 * TABLE_PAGES);
	pvm_load_range(0, 4 * TABLE_PAGES);

	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		discard(hva, 0, SLOT_PAGES);
		value = *pvm_word(hva, page) = i + 1;
		pvm_load_page(page);
		TEST_ASSERT_EQ(pvm.areas[0]->values[0], value);

		discard(hva, ranges[i].first, ranges[i].nr);
		pvm_load_page(page);
		TEST_ASSERT(pvm.areas[0]->values[0] == 0,
			    "The guest still sees %lu after %lu pages were thrown away",
			    value, ranges[i].nr);
	}
}

/* A page that is mapped where all was empty is write-protected like others. */
TEST_F(zap_one, dirty_log)
{
	const u64 page = TABLE_PAGES + 7;
	unsigned long *bitmap = calloc(1, SLOT_PAGES / 8);
	u64 round;
	void *hva;

	TEST_ASSERT(bitmap, "Out of memory");
	pvm_create(1);
	hva = add_memory();

	for (round = 0; round < 3; round++) {
		pvm_store_page(page, round);
		pvm_store_page(0, round);
		discard(hva, 0, SLOT_PAGES);
		pvm_store_page(page, round);

		pvm_set_slot(PVM_SLOT, KVM_MEM_LOG_DIRTY_PAGES, 0, SLOT_PAGES, hva);
		pvm_store_page(page, round);
		kvm_vm_get_dirty_log(pvm.vm, PVM_SLOT, bitmap);
		TEST_ASSERT(test_bit(page, bitmap), "The first store was not noticed");
		/* That has write-protected it again. */
		pvm_store_page(page, round + 1);
		kvm_vm_get_dirty_log(pvm.vm, PVM_SLOT, bitmap);
		TEST_ASSERT(test_bit(page, bitmap), "The second store was not noticed");
		TEST_ASSERT(!test_bit(0, bitmap), "A page is dirty that nobody used");
		pvm_set_slot(PVM_SLOT, 0, 0, SLOT_PAGES, hva);
	}
	free(bitmap);
}

FIXTURE(zap_all) { int unused; };
FIXTURE_SETUP(zap_all) { pvm_set_up(); }
FIXTURE_TEARDOWN(zap_all) { pvm_tear_down(); }

FIXTURE_VARIANT(zap_all) {
	u64 disabled_quirks;
};

FIXTURE_VARIANT_ADD(zap_all, as_is) { .disabled_quirks = 0 };
#ifdef __x86_64__
FIXTURE_VARIANT_ADD(zap_all, zap_slot_only) {
	.disabled_quirks = KVM_X86_QUIRK_SLOT_ZAP_ALL
};
#endif

/* The memslot is deleted, and comes back with other pages. */
TEST_F_TIMEOUT(zap_all, memslot, PVM_TIMEOUT_SECONDS)
{
	const u64 nr = 64;
	u64 round, page;
	void *hva;

	pvm_create(PVM_MAX_VCPUS);
	if (variant->disabled_quirks)
		vm_enable_cap(pvm.vm, KVM_CAP_DISABLE_QUIRKS2, variant->disabled_quirks);
	hva = add_memory();
	rewrite(hva, 0, nr, 0);

	pvm_start_vcpus(PVM_WATCH, PVM_SEQ, 0, nr);
	for (round = 0; round < 30; round++) {
		pvm_wait_for_passes(pvm_random(2));
		if (pvm_random(2))
			rewrite(hva, 0, SLOT_PAGES, 0);

		pvm_next_step(0, nr);
		pvm_set_slot(PVM_SLOT, 0, 0, 0, NULL);
		for (page = 0; page < nr; page++)
			*pvm_word(hva, page) = pvm.areas[0]->seq[page] + 1;
		pvm_set_slot(PVM_SLOT, 0, 0, SLOT_PAGES, hva);
		pvm_next_step(0, nr);
	}
	finish();
}

/*
 * Small pages become huge ones and are split again, in places whose tables were
 * empty just before, with dirty logging switched on and off.
 */
TEST_F_TIMEOUT(zap_one, huge_pages, PVM_TIMEOUT_SECONDS)
{
	struct timespec start;
	bool logging = false;
	void *hva;
	u64 first;

	if (4 * TABLE_PAGES > NR_VALUES)
		SKIP(return, "Huge pages are too large");

	pvm_create(PVM_MAX_VCPUS);
	hva = add_memory();
	rewrite(hva, 0, 4 * TABLE_PAGES, MADV_HUGEPAGE);

	pvm_start_vcpus(PVM_WATCH, PVM_SEQ, TABLE_PAGES - 24, 48);
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (timespec_elapsed(start).tv_sec < 2 * SECONDS) {
		first = pvm_random(2) * TABLE_PAGES;

		switch (pvm_random(6)) {
		case 0:
			rewrite(hva, first, TABLE_PAGES, MADV_NOHUGEPAGE);
			break;
		case 1:
			rewrite(hva, first, TABLE_PAGES, MADV_HUGEPAGE);
			break;
		case 2:
			/* May fail, e.g. for want of memory. */
			madvise(pvm_page(hva, first), TABLE_PAGES * pvm.page_size,
				MADV_COLLAPSE);
			break;
		case 3:
			rewrite(hva, TABLE_PAGES - 24 + pvm_random(48), 1, 0);
			break;
		case 4:
			rewrite(hva, 0, SLOT_PAGES, 0);
			break;
		case 5:
			logging = !logging;
			pvm_set_slot(PVM_SLOT, logging ? KVM_MEM_LOG_DIRTY_PAGES : 0,
				     0, SLOT_PAGES, hva);
			break;
		}
		pvm_wait_for_passes(pvm_random(3));
	}
	finish();
}

int main(int argc, char *argv[])
{
	pvm_require();
	return test_harness_run(argc, argv);
}
