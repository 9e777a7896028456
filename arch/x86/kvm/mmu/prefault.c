// SPDX-License-Identifier: GPL-2.0
/*
 * KVM prefault on x86: what virt/kvm/prefault.c needs to know of the MMUs
 *
 * Only MMUs that are indexed by guest physical address take part: the root is
 * direct.  Shadow paging and nested TDP map what a guest's page tables say, so
 * that the neighbours of a fault are not the neighbours of its gfn.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kvm_host.h>
#include <linux/kvm_prefault.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "spte.h"
#include "tdp_mmu.h"

/*
 * The shadow MMU has always made a fault, which holds mmu_lock for write there,
 * serve its neighbours as well.
 */
unsigned long kvm_arch_prefault_default(struct kvm *kvm)
{
	return tdp_mmu_enabled ? 0 : PTE_PREFETCH_NUM * PAGE_SIZE | KVM_PREFAULT_FIXED;
}

unsigned long kvm_arch_prefault_max_size(struct kvm *kvm)
{
	/* Their mappings are made or validated page by page by firmware. */
	if (kvm && (kvm->arch.vm_type == KVM_X86_SNP_VM ||
		    kvm->arch.vm_type == KVM_X86_TDX_VM))
		return 0;

	return KVM_PREFAULT_SIZE_MAX;
}

/**
 * __kvm_mmu_auto_prefault() - prefault around a fault if it is of a kind
 *			       whose neighbours can be mapped
 * @vcpu: the vCPU that faulted
 * @fault: the fault, fixed, its page already released
 * @config: kvm->auto_prefault, read once; there is a window
 */
void __kvm_mmu_auto_prefault(struct kvm_vcpu *vcpu, struct kvm_page_fault *fault,
			     unsigned long config)
{
	bool may_ro;

	/*
	 * A fault on a present mapping upgrades permissions, e.g. for dirty
	 * logging: its neighbours were looked at when it was created.
	 */
	if (fault->present || fault->rsvd || fault->is_private || !fault->slot)
		return;

	/*
	 * Set only for what has a struct page; not if fast_page_fault() fixed
	 * the fault, and not for a PFN mapping.  The reference is gone.
	 */
	if (!fault->refcounted_page)
		return;

	if (!vcpu->arch.mmu->root_role.direct)
		return;

	/*
	 * Read-only mappings cost a zap and a flush when the host breaks CoW.
	 * They are worth it where the guest just showed that it reads there.
	 */
	may_ro = !fault->write && !fault->map_writable;

	if (fault->goal_level == PG_LEVEL_4K)
		__kvm_auto_prefault(vcpu, fault->slot, fault->gfn, may_ro, config);
	else if (fault->goal_level == PG_LEVEL_2M)
		kvm_auto_prefault_huge(vcpu, fault->slot, fault->gfn,
				       KVM_HPAGE_GFN_SHIFT(PG_LEVEL_2M), may_ro,
				       config);
}

/**
 * kvm_mmu_may_prefault_huge() - would a fault map a huge page here?
 * @kvm: the VM
 * @slot: the memslot of @gfn, its dirty pages not tracked
 * @gfn: first gfn of 2MiB that have no SPTE
 *
 * Not what could be mapped by a larger page: no fault maps the half of it.
 * Whether it is executable is up to make_spte().
 *
 * Context: mmu_lock is held, and no invalidation has come in between.
 *
 * Return: true if it would.
 */
bool kvm_mmu_may_prefault_huge(struct kvm *kvm, const struct kvm_memory_slot *slot,
			       gfn_t gfn)
{
	return !kvm_mem_is_private(kvm, gfn) &&
	       kvm_mmu_max_mapping_level(kvm, NULL, slot, gfn) == PG_LEVEL_2M;
}

/* A first look, see kvm_mmu_may_prefault_huge(). */
static bool is_fit(struct kvm *kvm, const struct kvm_prefault *p, gfn_t gfn)
{
	if (kvm_mem_is_private(kvm, gfn))
		return false;

	return !p->order || kvm_gfn_is_lpage_allowed(kvm, p->slot, gfn, PG_LEVEL_2M);
}

/*
 * Gfns whose attributes say that they are private are no holes.  Whoever
 * changes attributes bumps mmu_invalidate_seq, so this need not be looked at
 * again under mmu_lock.
 */
static void drop_unfit(struct kvm *kvm, struct kvm_prefault *p)
{
	unsigned int i;

	if (!p->order && !kvm_arch_has_private_mem(kvm))
		return;

	for_each_set_bit(i, p->holes, p->window.nr)
		if (!is_fit(kvm, p, kvm_prefault_gfn(p, i)))
			__clear_bit(i, p->holes);
}

/**
 * kvm_mmu_prefault_find_holes() - note what is not mapped
 * @p: the attempt
 * @sptep: the SPTE of the window's first gfn; the table is kept from being freed
 *	   by the caller
 */
void kvm_mmu_prefault_find_holes(struct kvm_prefault *p, u64 *sptep)
{
	kvm_prefault_find_holes(p, sptep, sizeof(*sptep), SPTE_MMU_PRESENT_MASK,
				SPTE_MMU_PRESENT_MASK);
}

static bool shadow_mmu_holes(struct kvm_vcpu *vcpu, struct kvm_prefault *p)
{
	bool usable;
	u64 *sptep;

	read_lock(&vcpu->kvm->mmu_lock);

	/*
	 * Without accessed bits there is no way to tell neighbours that were
	 * used from those that were only mapped: leave them to be faulted in.
	 */
	sptep = kvm_mmu_direct_sptep(vcpu, p->window.gfn, kvm_mmu_prefault_level(p));
	usable = sptep && !sp_ad_disabled(sptep_to_sp(sptep));
	if (usable)
		kvm_mmu_prefault_find_holes(p, sptep);

	read_unlock(&vcpu->kvm->mmu_lock);
	return usable;
}

bool kvm_arch_prefault_holes(struct kvm_vcpu *vcpu, struct kvm_prefault *p)
{
	bool usable;

	if (tdp_mmu_enabled)
		usable = kvm_tdp_mmu_prefault_holes(vcpu, p);
	else
		usable = shadow_mmu_holes(vcpu, p);

	if (usable)
		drop_unfit(vcpu->kvm, p);

	return usable;
}

/*
 * The fault has left objects for PTE_PREFETCH_NUM rmaps in the cache, and most
 * rmaps need none: gfns that are mapped once.  No more are allocated here.
 */
static bool have_rmap(struct kvm_vcpu *vcpu)
{
	return kvm_mmu_memory_cache_nr_free_objects(&vcpu->arch.mmu_pte_list_desc_cache);
}

static void shadow_mmu_map(struct kvm_vcpu *vcpu, const struct kvm_prefault *p,
			   struct kvm_prefault_batch *batch)
{
	int level = kvm_mmu_prefault_level(p);
	u64 *table = kvm_mmu_direct_sptep(vcpu, p->window.gfn, level), *sptep;
	u64 template = 0, spte;
	struct kvm_mmu_page *sp;
	unsigned int i;
	gfn_t gfn;

	if (!table)
		return;

	sp = sptep_to_sp(table);
	kvm_prefault_select(batch, batch->writable);
	for (i = 0; i < batch->nr && have_rmap(vcpu); i++) {
		sptep = table + batch->index[i];
		if (*sptep != SHADOW_NONPRESENT_VALUE)
			continue;

		gfn = kvm_prefault_gfn(p, batch->index[i]);
		if (level > PG_LEVEL_4K &&
		    !kvm_mmu_may_prefault_huge(vcpu->kvm, p->slot, gfn))
			continue;

		spte = kvm_mmu_prefault_spte(vcpu, sp, p->slot, gfn,
					     batch->pfn[i], batch->writable,
					     &template);
		kvm_mmu_add_prefault_spte(vcpu, p->slot, sptep, gfn, spte);
		batch->mapped++;
	}
}

static bool is_stale(struct kvm_vcpu *vcpu, const struct kvm_prefault *p,
		     const struct kvm_prefault_batch *batch)
{
	gfn_t start = kvm_prefault_gfn(p, batch->index[0]);
	gfn_t end = kvm_prefault_gfn(p, batch->index[batch->nr - 1] + 1);

	return kvm_mmu_is_root_stale(vcpu) ||
	       mmu_invalidate_retry_gfn_range(vcpu->kvm, p->mmu_seq, start, end);
}

void kvm_arch_prefault_map(struct kvm_vcpu *vcpu, struct kvm_prefault *p,
			   struct kvm_prefault_batch *batch)
{
	struct kvm *kvm = vcpu->kvm;

	if (tdp_mmu_enabled) {
		guard(read_lock)(&kvm->mmu_lock);

		if (is_stale(vcpu, p, batch))
			p->stop = KVM_PREFAULT_STALE;
		else
			kvm_tdp_mmu_prefault_map(vcpu, p, batch);
	} else {
		guard(write_lock)(&kvm->mmu_lock);

		if (is_stale(vcpu, p, batch))
			p->stop = KVM_PREFAULT_STALE;
		else
			shadow_mmu_map(vcpu, p, batch);
	}
}

static u64 make_prefault_spte(struct kvm_vcpu *vcpu, struct kvm_mmu_page *sp,
			      const struct kvm_memory_slot *slot, gfn_t gfn,
			      kvm_pfn_t pfn, bool host_writable)
{
	bool track = host_writable && kvm_slot_dirty_track_enabled(slot);
	unsigned int access = sp->role.access;
	u64 spte;

	/* make_spte() would mark the gfn dirty if it made the SPTE writable. */
	if (track)
		access &= ~ACC_WRITE_MASK;

	make_spte(vcpu, sp, slot, access, gfn, pfn, SHADOW_NONPRESENT_VALUE,
		  true, false, host_writable, &spte);

	/*
	 * Without accessed bits make_spte() leaves an entry that faults on the
	 * first access, which is what this is meant to save.
	 */
	if (is_access_track_spte(spte))
		spte = restore_acc_track_spte(spte);

	/* As in make_spte(): not if a shadow page would have to be unsynced. */
	if (track && (sp->role.access & ACC_WRITE_MASK) &&
	    !mmu_try_to_unsync_pages(vcpu->kvm, slot, gfn, false, true))
		spte |= shadow_mmu_writable_mask;

	return spte;
}

/**
 * kvm_mmu_make_prefault_spte() - the SPTE of a page that the guest may touch
 * @vcpu: the vCPU
 * @sp: the table
 * @slot: the memslot of @gfn
 * @gfn: the gfn
 * @pfn: its page in the host
 * @host_writable: the host maps the page writable
 * @template: set to the SPTE without its PFN, if that is what the SPTEs of the
 *	      other pages of the batch are made of, too
 *
 * The SPTE starts old.  In a memslot whose dirty pages are tracked it is
 * write-protected, though MMU-writable, so that the guest's first write takes
 * the fast page fault path, which marks exactly that gfn.
 *
 * An SPTE depends on its gfn only by what is write-tracked or shadowed, neither
 * of which exists where a huge page is allowed, and on its page only by whether
 * that is host MMIO, which kvm_prefault_select() has excluded.
 *
 * Context: mmu_lock is held, for read or write, since @template was 0.
 *
 * Return: the SPTE.
 */
u64 kvm_mmu_make_prefault_spte(struct kvm_vcpu *vcpu, struct kvm_mmu_page *sp,
			       const struct kvm_memory_slot *slot, gfn_t gfn,
			       kvm_pfn_t pfn, bool host_writable,
			       u64 *template)
{
	u64 spte = make_prefault_spte(vcpu, sp, slot, gfn, pfn, host_writable);

	if (kvm_gfn_is_lpage_allowed(vcpu->kvm, slot, gfn, PG_LEVEL_2M))
		*template = spte & ~PFN_PHYS(pfn);

	return spte;
}

/**
 * kvm_mmu_prefault_resident() - the part of a KVM_PRE_FAULT_MEMORY range that
 *				 can be mapped without faulting anything in
 * @vcpu: the vCPU, its MMU loaded
 * @range: what is left of the range
 *
 * Return: the number of pages at the start of @range that are mapped now, 0 if
 *	   the first one is up to the page fault path; -EOPNOTSUPP if the page
 *	   tables have no entries for it.
 */
int kvm_mmu_prefault_resident(struct kvm_vcpu *vcpu,
			      const struct kvm_pre_fault_memory *range)
{
	/* The root of a 32-bit host's TDP ends at 4GiB, and starts anew there. */
	if (vcpu->arch.mmu->root_role.level == PT32E_ROOT_LEVEL &&
	    range->gpa >= SZ_4G)
		return -EOPNOTSUPP;

	if (!tdp_mmu_enabled || !vcpu->arch.mmu->root_role.direct)
		return 0;

	/* The path that knows private memory also knows what is wrong with it. */
	if (kvm_arch_has_private_mem(vcpu->kvm))
		return 0;

	return kvm_prefault_resident(vcpu, gpa_to_gfn(range->gpa),
				     range->size >> PAGE_SHIFT);
}
