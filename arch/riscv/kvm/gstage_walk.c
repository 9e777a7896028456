// SPDX-License-Identifier: GPL-2.0
/*
 * Walks of the G-stage: what is done to a range of guest memory, or to all of it
 *
 * They visit what is mapped and nothing else, see kvm_pt_iter.h.  Unmapping
 * leaves tables in place, with a hint that they are empty: freeing them would
 * take a fence of all addresses, and the next fault would have to allocate and
 * zero them again.  They are freed when a huge page takes their place, and with
 * the VM.
 */
#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/module.h>

#include <asm/kvm_gstage.h>
#include <asm/kvm_mmu.h>
#include <asm/kvm_tlb.h>

#include "kvm_pt_fmt.h"
#include "trace.h"

#include <linux/kvm_pt_iter.h>

/* Whether tables that turn out to be empty are hinted to be so. */
static bool gstage_empty_hint __ro_after_init = true;
module_param(gstage_empty_hint, bool, 0444);

#define PGD_INDEX_LG2	(KVM_PT_INDEX_LG2 + kvm_riscv_gstage_pgd_xbits)

static pte_t *it_ptep(const struct kvm_pt_iter *it)
{
	return (pte_t *)it->ptep;
}

static gfn_t it_end(const struct kvm_pt_iter *it)
{
	return it->pos + (1ULL << kvm_pt_span_lg2(it->level));
}

/* Begins a walk of what [start, end) can hold, false if that is nothing. */
static bool walk_start(struct kvm_pt_iter *it, struct kvm_gstage *gstage,
		       unsigned int min_level, gfn_t start, gfn_t end,
		       unsigned int flags)
{
	unsigned int root_level = gstage->pgd_levels - 1;

	if (!gstage->pgd)
		return false;

	end = min(end, kvm_riscv_gstage_gpa_size(gstage->pgd_levels) >> PAGE_SHIFT);
	if (start >= end)
		return false;

	it->ctx.kvm = gstage->kvm;
	it->ctx.root_level = root_level;
	it->ctx.root_lg2 = PGD_INDEX_LG2;
	kvm_pt_start(it, (unsigned long *)gstage->pgd, root_level, min_level,
		     start, end, flags);
	return true;
}

/* One copy of these is enough. */
static noinline enum kvm_pt_event walk_far(struct kvm_pt_iter *it)
{
	return kvm_pt_next(it);
}

static noinline enum kvm_pt_event walk_next(struct kvm_pt_iter *it)
{
	return kvm_pt_next_near(it) ? KVM_PT_LEAF : walk_far(it);
}

/* Unmapping has its own one: that is what happens most, to the most leaves. */
static __always_inline enum kvm_pt_event walk_next_inline(struct kvm_pt_iter *it)
{
	return kvm_pt_next_near(it) ? KVM_PT_LEAF : walk_far(it);
}

/*
 * Flushes what has been done from @start up to and including the current entry:
 * whoever gets mmu_lock next may rely on it.
 */
static void flush_walked(struct kvm *kvm, const struct kvm_pt_iter *it, gfn_t start)
{
	gfn_t end = min(it_end(it), it->end);

	kvm_flush_remote_tlbs_range(kvm, start, end - start);
}

/**
 * kvm_riscv_gstage_unmap_range() - unmap whatever a range maps
 * @gstage: the G-stage
 * @start: first address
 * @size: size of the range
 * @may_block: mmu_lock may be dropped meanwhile
 *
 * A huge page goes as a whole, whatever part of it the range covers: what is
 * still there in the host will be mapped again.
 *
 * Context: mmu_lock is held for write.
 *
 * Return: true if the caller has to flush the range.
 */
bool kvm_riscv_gstage_unmap_range(struct kvm_gstage *gstage,
				  gpa_t start, gpa_t size, bool may_block)
{
	gfn_t first = start >> PAGE_SHIFT, end = PFN_UP(start + size);
	bool yields = may_block && !(gstage->flags & KVM_GSTAGE_FLAGS_LOCAL);
	unsigned int flags = KVM_PT_HINTS;
	struct kvm *kvm = gstage->kvm;
	unsigned long leaves = 0;
	enum kvm_pt_event event;
	struct kvm_pt_iter it;
	bool flush = false;

	if (yields)
		flags |= KVM_PT_PAUSES;
	if (gstage_empty_hint)
		flags |= KVM_PT_LEARN;
	if (!walk_start(&it, gstage, 0, first, end, flags))
		return false;

	while ((event = walk_next_inline(&it)) != KVM_PT_END) {
		if (event == KVM_PT_LEAF) {
			set_pte(it_ptep(&it), __pte(0));
			flush = true;
			leaves++;

			/* The caller flushes only the range. */
			if (it.level && (it.pos < first || it_end(&it) > end))
				kvm_riscv_gstage_tlb_flush(gstage, it.level, it.pos << PAGE_SHIFT);
		}

		if (!yields || !kvm_pt_pause(&it.ctx))
			continue;

		if (flush)
			flush_walked(kvm, &it, first);
		flush = false;
		cond_resched_rwlock_write(&kvm->mmu_lock);

		/* The VM's mm may be gone, and all tables with it. */
		if (!kvm->arch.pgd)
			break;
		kvm_pt_restart(&it);
	}

	trace_kvm_gstage_unmap(start, start + size, leaves);

	return flush;
}

static bool write_protect(pte_t *ptep)
{
	pte_t pte = ptep_get(ptep);

	if (!pte_write(pte))
		return false;

	set_pte(ptep, pte_wrprotect(pte));
	return true;
}

/**
 * kvm_riscv_gstage_wp_range() - write-protect a range
 * @gstage: the G-stage
 * @start: first address
 * @end: address behind the last one
 *
 * Context: mmu_lock is held for write.
 *
 * Return: true if the caller has to flush the range.
 */
bool kvm_riscv_gstage_wp_range(struct kvm_gstage *gstage, gpa_t start, gpa_t end)
{
	struct kvm_pt_iter it;
	bool flush = false;

	if (!walk_start(&it, gstage, 0, start >> PAGE_SHIFT, PFN_UP(end), KVM_PT_HINTS))
		return false;

	while (walk_next(&it) != KVM_PT_END)
		flush |= write_protect(it_ptep(&it));

	return flush;
}

/**
 * kvm_riscv_gstage_wp_pt_masked() - write-protect some pages
 * @gstage: the G-stage
 * @base_gfn: the page of bit 0
 * @mask: which pages, not 0
 *
 * A huge page is write-protected as a whole.
 *
 * Context: mmu_lock is held for write.
 *
 * Return: true if the caller has to flush the pages.
 */
bool kvm_riscv_gstage_wp_pt_masked(struct kvm_gstage *gstage, gfn_t base_gfn,
				   unsigned long mask)
{
	struct kvm_pt_iter it;
	bool flush = false;

	if (!walk_start(&it, gstage, 0, base_gfn + __ffs(mask),
			base_gfn + __fls(mask) + 1, KVM_PT_HINTS))
		return false;

	while (walk_next(&it) != KVM_PT_END) {
		if (it.level || mask & BIT(it.pos - base_gfn))
			flush |= write_protect(it_ptep(&it));
	}

	return flush;
}

/**
 * kvm_riscv_gstage_age_range() - was any page of a range accessed?
 * @gstage: the G-stage
 * @start: first address
 * @end: address behind the last one; the range may be of any size
 * @clear: make all pages of the range old
 *
 * Return: true if a page was young.
 */
bool kvm_riscv_gstage_age_range(struct kvm_gstage *gstage, gpa_t start,
				gpa_t end, bool clear)
{
	struct kvm_pt_iter it;
	bool young = false;

	if (!walk_start(&it, gstage, 0, start >> PAGE_SHIFT, PFN_UP(end), KVM_PT_HINTS))
		return false;

	while (walk_next(&it) != KVM_PT_END) {
		if (clear)
			young |= ptep_test_and_clear_young(NULL, 0, it_ptep(&it));
		else if (pte_young(ptep_get(it_ptep(&it))))
			return true;
	}

	return young;
}

/**
 * kvm_riscv_gstage_split_range() - split the huge pages of a range
 * @gstage: the G-stage
 * @start: first address
 * @end: address behind the last one
 *
 * Context: mmu_lock is held for write, and may be dropped meanwhile.
 *
 * Return: true if the caller has to flush the range.
 */
bool kvm_riscv_gstage_split_range(struct kvm_gstage *gstage, gpa_t start, gpa_t end)
{
	struct kvm *kvm = gstage->kvm;
	struct kvm_mmu_memory_cache *pcache = &kvm->arch.pgd_split_page_cache;
	bool flush = false, no_table;
	enum kvm_pt_event event;
	struct kvm_pt_iter it;
	int ret;

	lockdep_assert_held_write(&kvm->mmu_lock);

	if (!walk_start(&it, gstage, 1, start >> PAGE_SHIFT, PFN_UP(end),
			KVM_PT_PAUSES | KVM_PT_HINTS))
		return false;

	/* What a huge page is split into is walked next. */
	while ((event = walk_next(&it)) != KVM_PT_END) {
		no_table = false;
		if (event == KVM_PT_LEAF) {
			if (kvm_mmu_memory_cache_nr_free_objects(pcache))
				flush |= kvm_riscv_gstage_split_huge(gstage, pcache,
								     it.pos << PAGE_SHIFT,
								     it.level - 1, false);
			else
				no_table = true;
		}

		if (!no_table && !kvm_pt_pause(&it.ctx))
			continue;

		if (flush)
			flush_walked(kvm, &it, start >> PAGE_SHIFT);
		flush = false;

		write_unlock(&kvm->mmu_lock);
		cond_resched();
		ret = kvm_mmu_topup_memory_cache(pcache, 1);
		write_lock(&kvm->mmu_lock);
		if (ret) {
			kvm_err("Failed to topup split page cache\n");
			return false;
		}

		/* The VM's mm may be gone, and all tables with it. */
		if (!kvm->arch.pgd)
			return false;
		kvm_pt_restart(&it);
	}

	return flush;
}

/**
 * kvm_riscv_gstage_is_empty() - does a range map nothing?
 * @gstage: the G-stage
 * @start: first address
 * @end: address behind the last one
 *
 * Context: mmu_lock is held.
 */
bool kvm_riscv_gstage_is_empty(struct kvm_gstage *gstage, gpa_t start, gpa_t end)
{
	struct kvm_pt_iter it;

	return !walk_start(&it, gstage, 0, start >> PAGE_SHIFT, PFN_UP(end), KVM_PT_HINTS) ||
	       walk_next(&it) == KVM_PT_END;
}

/* Frees the tables below @table, which is at @level, but not @table itself. */
static void free_tables_below(void *table, unsigned int level, unsigned int lg2,
			      bool may_resched)
{
	enum kvm_pt_event event;
	struct kvm_pt_iter it;

	if (!level)
		return;

	it.ctx.root_level = level;
	it.ctx.root_lg2 = lg2;
	kvm_pt_start(&it, table, level, 1, 0, 1ULL << (kvm_pt_span_lg2(level) + lg2),
		     KVM_PT_TABLES | KVM_PT_TABLES_AFTER);

	while ((event = walk_far(&it)) != KVM_PT_END) {
		/* A table that has tables below comes again. */
		if (event == KVM_PT_LEAF || (event == KVM_PT_TABLE && it.level > 1))
			continue;

		free_page((unsigned long)kvm_pt_child(&it.ctx, it.entry, it.level));
		if (may_resched)
			cond_resched();
	}
}

/**
 * kvm_riscv_gstage_free_table() - free a table and all those below
 * @table: the table, which nobody can reach any more
 * @level: its level, less than that of the pgd
 */
void kvm_riscv_gstage_free_table(pte_t *table, u32 level)
{
	free_tables_below(table, level, KVM_PT_INDEX_LG2, false);
	free_page((unsigned long)table);
}

/**
 * kvm_riscv_gstage_free_pgd() - free all tables of a G-stage
 * @gstage: the G-stage, which nobody can reach any more: neither through
 *	    kvm->arch.pgd nor, after a flush, through a TLB
 *
 * The pages that it maps need no care, KVM holds no references to them.
 */
void kvm_riscv_gstage_free_pgd(struct kvm_gstage *gstage)
{
	free_tables_below(gstage->pgd, gstage->pgd_levels - 1, PGD_INDEX_LG2, true);
	free_pages((unsigned long)gstage->pgd, get_order(kvm_riscv_gstage_pgd_size));
}
