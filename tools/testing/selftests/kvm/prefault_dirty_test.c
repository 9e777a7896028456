// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_CAP_AUTO_PREFAULT and dirty logging
 *
 * Prefaulting must not make pages dirty that the guest has not written, nor
 * lose any that it has, whatever way dirty pages are reported.
 */
#include <asm/barrier.h>
#include <linux/bitmap.h>

#include "kvm_test_harness.h"
#include "prefault_vm.h"

#define FIXED	KVM_AUTO_PREFAULT_FIXED

#define LOG_PAGES	1024
#define MAX_RING	(1024 * 1024)

/* How dirty pages are reported. */
struct dirty_params {
	/* KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 */
	u64 manual;
	bool ring;
	/* Logging starts when pages have been prefaulted. */
	bool late;
	/* A huge page of the host is resident where one 4K page was touched. */
	bool thp;
};

static struct dirty_params dirty;
static unsigned long *dirty_bitmap, *ring_bitmap;
static void *dirty_memory;

/* The smallest ring that this host accepts, in bytes. */
static u32 smallest_ring(void)
{
	struct kvm_vm *probe = vm_create_barebones();
	u32 size, cap = KVM_CAP_DIRTY_LOG_RING;

	if (vm_check_cap(probe, KVM_CAP_DIRTY_LOG_RING_ACQ_REL))
		cap = KVM_CAP_DIRTY_LOG_RING_ACQ_REL;
	for (size = pvm.page_size; size <= MAX_RING; size *= 2)
		if (!__vm_enable_cap(probe, cap, size))
			break;
	kvm_vm_free(probe);

	TEST_ASSERT(size <= MAX_RING, "No dirty ring of up to %u bytes is accepted", MAX_RING);
	return size;
}

static bool dirty_supported(void)
{
	u64 manual = kvm_check_cap(KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2);
	bool ring = kvm_has_cap(KVM_CAP_DIRTY_LOG_RING) ||
		    kvm_has_cap(KVM_CAP_DIRTY_LOG_RING_ACQ_REL);

	if (dirty.manual & ~manual)
		return false;
	if (dirty.ring && !ring)
		return false;
	return !dirty.thp || thp_configured();
}

static void create_dirty_vm(void)
{
	pvm_create_type(VM_TYPE_DEFAULT, dirty.ring ? smallest_ring() : 0, 1);
	if (dirty.manual)
		vm_enable_cap(pvm.vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, dirty.manual);

	dirty_bitmap = bitmap_zalloc(LOG_PAGES);
	ring_bitmap = bitmap_zalloc(LOG_PAGES);
	dirty_memory = pvm_mmap(LOG_PAGES, 0);
	if (dirty.thp)
		kvm_madvise(dirty_memory, LOG_PAGES * pvm.page_size, MADV_HUGEPAGE);
	pvm_fill(dirty_memory, 0, LOG_PAGES);
	pvm_set_slot(PVM_SLOT, dirty.late ? 0 : KVM_MEM_LOG_DIRTY_PAGES, 0, LOG_PAGES,
		     dirty_memory);
}

static void start_logging(void)
{
	pvm_set_slot(PVM_SLOT, KVM_MEM_LOG_DIRTY_PAGES, 0, LOG_PAGES, dirty_memory);
}

static void collect_ring(void)
{
	struct kvm_dirty_gfn *gfns = vcpu_map_dirty_ring(pvm.vcpus[0]), *gfn;
	u32 count = 0, reset;

	for (;;) {
		gfn = &gfns[pvm.vcpus[0]->fetch_index % pvm.vcpus[0]->dirty_gfns_count];
		/* Pairs with the release in KVM's kvm_dirty_ring_push(). */
		if (smp_load_acquire(&gfn->flags) != KVM_DIRTY_GFN_F_DIRTY)
			break;
		TEST_ASSERT(gfn->slot == PVM_SLOT && gfn->offset < LOG_PAGES,
			    "Slot %u, page %llu is not logged", gfn->slot, gfn->offset);
		__set_bit(gfn->offset, ring_bitmap);
		/* Pairs with the acquire in KVM's kvm_dirty_ring_reset(). */
		smp_store_release(&gfn->flags, KVM_DIRTY_GFN_F_RESET);
		pvm.vcpus[0]->fetch_index++;
		count++;
	}
	reset = kvm_vm_reset_dirty_ring(pvm.vm);
	TEST_ASSERT(reset == count, "%u pages were collected, %u reset", count, reset);
}

/* Sets dirty_bitmap to what was written since the last time; returns the number. */
static u64 collect_dirty(void)
{
	u64 i, count = 0;

	if (dirty.ring) {
		collect_ring();
		memcpy(dirty_bitmap, ring_bitmap, BITS_TO_BYTES(LOG_PAGES));
		bitmap_zero(ring_bitmap, LOG_PAGES);
	} else {
		kvm_vm_get_dirty_log(pvm.vm, PVM_SLOT, dirty_bitmap);
		if (dirty.manual)
			kvm_vm_clear_dirty_log(pvm.vm, PVM_SLOT, dirty_bitmap, 0, LOG_PAGES);
	}
	for (i = 0; i < LOG_PAGES; i++)
		count += test_bit(i, dirty_bitmap);
	return count;
}

FIXTURE(prefault_dirty) { int unused; };
FIXTURE_SETUP(prefault_dirty) { pvm_set_up(); }
FIXTURE_TEARDOWN(prefault_dirty) { pvm_tear_down(); }

FIXTURE_VARIANT(prefault_dirty) {
	struct dirty_params params;
};

#define MANUAL		KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE
#define INITIALLY_SET	(MANUAL | KVM_DIRTY_LOG_INITIALLY_SET)

FIXTURE_VARIANT_ADD(prefault_dirty, get) { .params = {} };
FIXTURE_VARIANT_ADD(prefault_dirty, get_late) { .params = { .late = true } };
FIXTURE_VARIANT_ADD(prefault_dirty, get_thp) { .params = { .thp = true } };
FIXTURE_VARIANT_ADD(prefault_dirty, manual) { .params = { .manual = MANUAL } };
FIXTURE_VARIANT_ADD(prefault_dirty, initially_set) { .params = { .manual = INITIALLY_SET } };
FIXTURE_VARIANT_ADD(prefault_dirty, initially_set_late) {
	.params = { .manual = INITIALLY_SET, .late = true }
};

FIXTURE_VARIANT_ADD(prefault_dirty, ring) { .params = { .ring = true } };
FIXTURE_VARIANT_ADD(prefault_dirty, ring_thp) { .params = { .ring = true, .thp = true } };
FIXTURE_VARIANT_ADD(prefault_dirty, ring_late) { .params = { .ring = true, .late = true } };

/* Stores to @nr random pages, expects these to be dirty, and written. */
static void expect_stores_dirty(u64 nr, u64 value)
{
	u32 *list = pvm.areas[0]->list;
	struct prefault_stats stats;
	u64 i, count;

	pvm_list_range(0, LOG_PAGES);
	prefault_shuffle(list, LOG_PAGES, &pvm.rng);
	pvm.areas[0]->value = value;
	stats = pvm_run_list(PVM_STORE, nr);
	count = collect_dirty();
	for (i = 0; i < nr; i++) {
		TEST_ASSERT(test_bit(list[i], dirty_bitmap),
			    "Page %u was written, but is not dirty", list[i]);
		TEST_ASSERT(*pvm_word(dirty_memory, list[i]) == pvm_stored(list[i], value),
			    "The store to page %u is lost", list[i]);
	}
	TEST_ASSERT(count == nr, "%lu pages were written, %lu are dirty", nr, count);

	/* Only x86 counts these: a mapped page needs no more than a bit to be set. */
	TEST_ASSERT(stats.pf_fast == stats.pf_taken,
		    "Of %lu faults all should have been fast, %lu were",
		    stats.pf_taken, stats.pf_fast);
}

/*
 * Loads a page of each window, and then expects what KVM reports as dirty when
 * the window is off to be all that it reports: usually these very pages, if it
 * maps them writable at once.
 */
static void expect_loads_clean(const u32 *pages, const unsigned long *without)
{
	u64 i, nr = LOG_PAGES / pvm.full_pages, count;
	struct prefault_stats stats;

	memcpy(pvm.areas[0]->list, pages, nr * sizeof(*pages));
	stats = pvm_run_list(PVM_LOAD, nr);
	pvm_expect_patterns(nr);
	TEST_ASSERT(stats.windows == nr && stats.mapped, "The window should be used");

	collect_dirty();
	for (i = 0; i < LOG_PAGES; i++)
		TEST_ASSERT(test_bit(i, dirty_bitmap) == test_bit(i, without),
			    "Page %lu, %sread, is %s; with the window off it is %s", i,
			    i == pages[i / pvm.full_pages] ? "" : "not ",
			    test_bit(i, dirty_bitmap) ? "dirty" : "clean",
			    test_bit(i, without) ? "dirty" : "clean");

	/* Loads of prefaulted pages do not make them dirty either. */
	stats = pvm_load_range(0, LOG_PAGES);
	pvm_expect_patterns(LOG_PAGES);
	count = collect_dirty();
	TEST_ASSERT(count <= stats.windows,
		    "Nothing was written, but %lu pages are dirty", count);
	TEST_ASSERT(pvm_nr_faults(&stats) <= LOG_PAGES / 4 + PVM_FAULT_NOISE,
		    "Few pages should be left to fault in, %lu faulted",
		    pvm_nr_faults(&stats));
}

TEST_F_TIMEOUT(prefault_dirty, exact, PVM_TIMEOUT_SECONDS)
{
	unsigned long without[BITS_TO_LONGS(LOG_PAGES)];
	u32 pages[LOG_PAGES];
	u64 i;

	dirty = variant->params;
	if (!dirty_supported())
		SKIP(return, "Not supported");
	create_dirty_vm();
	pvm.ring_full = collect_ring;

	if (dirty.late) {
		vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
		pvm_load_range(0, LOG_PAGES);
		start_logging();
	}
	i = collect_dirty();
	if (dirty.manual == INITIALLY_SET)
		TEST_ASSERT(i == LOG_PAGES, "All pages should be dirty at first, %lu are", i);

	/* Pages that were mapped before logging started are logged. */
	if (dirty.late)
		expect_stores_dirty(100, 1);
	pvm_fill(dirty_memory, 0, LOG_PAGES);

	for (i = 0; i < LOG_PAGES / pvm.full_pages; i++)
		pages[i] = i * pvm.full_pages + pvm_random(pvm.full_pages);
	vm_set_prefault(pvm.vm, 0, 0);
	prefault_unmap_guest(dirty_memory, LOG_PAGES * pvm.page_size);
	memcpy(pvm.areas[0]->list, pages, sizeof(pages));
	pvm_run_list(PVM_LOAD, LOG_PAGES / pvm.full_pages);
	collect_dirty();
	memcpy(without, dirty_bitmap, sizeof(without));

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	prefault_unmap_guest(dirty_memory, LOG_PAGES * pvm.page_size);
	expect_loads_clean(pages, without);
	expect_stores_dirty(100, 2);
	expect_stores_dirty(200, 3);
	expect_stores_dirty(1, 4);

	/* Stores right after a prefault, with nothing collected in between. */
	prefault_unmap_guest(dirty_memory, LOG_PAGES * pvm.page_size);
	pvm_load_range(0, 1);
	pvm_load_range(pvm.full_pages, 1);
	collect_dirty();
	expect_stores_dirty(LOG_PAGES / 2, 5);
}

/*
 * KVM_PRE_FAULT_MEMORY writes nothing.  KVM may take the first page of a table
 * for written, as if the guest had touched it.
 */
TEST_F_TIMEOUT(prefault_dirty, pre_fault, PVM_TIMEOUT_SECONDS)
{
	u64 count;

	dirty = variant->params;
	if (!kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY) || !dirty_supported())
		SKIP(return, "Not supported");
	if (pvm_uses_shadow_mmu())
		SKIP(return, "The shadow MMU does take all of it for written");
	create_dirty_vm();
	pvm.ring_full = collect_ring;
	if (!dirty.late)
		collect_dirty();

	pvm_pre_fault(LOG_PAGES);
	if (dirty.late)
		start_logging();
	count = collect_dirty();
	TEST_ASSERT(count <= LOG_PAGES / pvm.full_pages ||
		    (dirty.late && dirty.manual == INITIALLY_SET),
		    "Nothing was written, but %lu pages are dirty", count);

	pvm_expect_mapped(0, LOG_PAGES);
	pvm_expect_patterns(LOG_PAGES);
	expect_stores_dirty(100, 1);
}

static void *dirty_copy;

static void copy_dirty(void)
{
	u64 i;

	collect_dirty();
	for (i = 0; i < LOG_PAGES; i++)
		if (test_bit(i, dirty_bitmap))
			memcpy(pvm_page(dirty_copy, i), pvm_page(dirty_memory, i),
			       pvm.page_size);
}

/*
 * What a migration does: collects dirty pages and copies them, again and
 * again, while the guest stores to its memory.  The copy has to be complete.
 */
TEST_F_TIMEOUT(prefault_dirty, migration, PVM_TIMEOUT_SECONDS)
{
	u64 i, round;

	dirty = variant->params;
	if (!dirty_supported())
		SKIP(return, "Not supported");
	create_dirty_vm();
	dirty_copy = pvm_mmap(LOG_PAGES, 0);

	vm_set_prefault(pvm.vm, pvm.full_size, FIXED);
	pvm_start_vcpus(PVM_SCRIBBLE, 0, 0, LOG_PAGES);
	if (dirty.late) {
		pvm_wait_for_passes(1);
		start_logging();
	}
	memcpy(dirty_copy, dirty_memory, LOG_PAGES * pvm.page_size);

	for (round = 0; round < 60; round++) {
		copy_dirty();
		if (!(round % 3))
			prefault_unmap_guest(dirty_memory, LOG_PAGES * pvm.page_size);
	}
	pvm_ask_to_stop();
	while (pvm_nr_running())
		copy_dirty();
	pvm_stop_vcpus();
	copy_dirty();

	TEST_ASSERT(pvm.areas[0]->passes && pvm_sum_of_windows(),
		    "The guest should have stored, and windows been used");
	for (i = 0; i < LOG_PAGES; i++)
		TEST_ASSERT(*pvm_word(dirty_copy, i) == *pvm_word(dirty_memory, i),
			    "Page %lu was written, but not reported: %lx in the copy, now %lx",
			    i, *pvm_word(dirty_copy, i), *pvm_word(dirty_memory, i));
}

int main(int argc, char *argv[])
{
	pvm_require();
	return test_harness_run(argc, argv);
}
