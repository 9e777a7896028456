// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM prefault on arm64: what virt/kvm/prefault.c needs to know of stage-2
 *
 * Only the canonical stage-2 of a VM that the host manages itself takes part.
 * With pKVM every mapping is a hypercall that takes the MMU lock for write, and
 * a shadow stage-2 is laid out as the guest hypervisor's tables say.
 *
 * Unmapping frees an empty table at once, not through RCU, while faults that hold
 * the MMU lock for read replace tables by blocks and free them through RCU: the
 * tables are looked at under both.
 */
#include <linux/kvm_host.h>
#include <linux/kvm_prefault.h>

#include <asm/cpufeature.h>
#include <asm/kvm_mmu.h>
#include <asm/kvm_pgtable.h>
#include <asm/virt.h>

unsigned long kvm_arch_prefault_max_size(struct kvm *kvm)
{
	BUILD_BUG_ON(KVM_PREFAULT_PAGES_MAX > PTRS_PER_PTE);

	if (is_protected_kvm_enabled())
		return 0;

	return KVM_PREFAULT_PAGES_MAX * PAGE_SIZE;
}

/*
 * Where the hardware does not keep caches and stage-2 attributes coherent, pages
 * are cleaned with the MMU lock held, and that takes long.
 */
unsigned int kvm_arch_prefault_batch(void)
{
	return cpus_have_final_cap(ARM64_HAS_STAGE2_FWB) ? KVM_PREFAULT_BATCH : 8;
}

bool kvm_arch_prefault_holes(struct kvm_vcpu *vcpu, struct kvm_prefault *p)
{
	struct kvm *kvm = vcpu->kvm;
	kvm_pte_t *ptep;

	guard(read_lock)(&kvm->mmu_lock);
	guard(rcu)();

	ptep = kvm_pgtable_stage2_last_level(kvm->arch.mmu.pgt,
					     gfn_to_gpa(p->window.gfn));
	if (ptep)
		kvm_prefault_find_holes(p, ptep, sizeof(*ptep), KVM_PTE_VALID, ~0ULL);

	return ptep;
}

/*
 * Without hardware management of the access flag, an old entry would cost the
 * exit that prefaulting it is meant to save.
 */
static bool can_map_old(struct kvm *kvm)
{
	return cpu_has_hw_af() && kvm->arch.mmu.vtcr & VTCR_EL2_HA;
}

/*
 * A page in a memslot whose dirty pages are tracked is mapped read-only: the
 * guest's first write to it then takes a permission fault, which marks exactly
 * that page. Execution is allowed only where the instruction cache needs no
 * maintenance for it; elsewhere that is left to the permission fault as well.
 */
static enum kvm_pgtable_prot prefault_prot(const struct kvm_memory_slot *slot,
					   bool writable)
{
	enum kvm_pgtable_prot prot = KVM_PGTABLE_PROT_R;

	if (writable && !kvm_slot_dirty_track_enabled(slot))
		prot |= KVM_PGTABLE_PROT_W;

	if (cpus_have_final_cap(ARM64_HAS_CACHE_DIC))
		prot |= KVM_PGTABLE_PROT_X;

	return prot;
}

/*
 * What the guest must not see before it is done: cleaned pages, and tags that
 * have been initialised.
 */
static void prepare_pages(struct kvm *kvm, const struct kvm_prefault_batch *batch)
{
	bool clean = !cpus_have_final_cap(ARM64_HAS_STAGE2_FWB);
	unsigned int i;

	lockdep_assert_held(&kvm->mmu_lock);

	for (i = 0; clean && i < batch->nr; i++)
		__clean_dcache_guest_page(pfn_to_kaddr(batch->pfn[i]), PAGE_SIZE);

	for (i = 0; kvm_has_mte(kvm) && i < batch->nr; i++)
		sanitise_mte_tags(kvm, batch->pfn[i], PAGE_SIZE);
}

void kvm_arch_prefault_map(struct kvm_vcpu *vcpu, struct kvm_prefault *p,
			   struct kvm_prefault_batch *batch)
{
	enum kvm_pgtable_prot prot = prefault_prot(p->slot, batch->writable);
	gfn_t start = p->window.gfn + batch->index[0];
	gfn_t end = p->window.gfn + batch->index[batch->nr - 1] + 1;
	struct kvm *kvm = vcpu->kvm;

	guard(read_lock)(&kvm->mmu_lock);
	guard(rcu)();

	if (mmu_invalidate_retry_gfn_range(kvm, p->mmu_seq, start, end)) {
		p->stop = KVM_PREFAULT_STALE;
		return;
	}

	kvm_prefault_select(batch, prot & KVM_PGTABLE_PROT_W);
	if (!batch->nr)
		return;

	prepare_pages(kvm, batch);
	kvm_pgtable_stage2_fill(kvm->arch.mmu.pgt,
				gfn_to_gpa(p->window.gfn + batch->index[0]),
				batch, prot, can_map_old(kvm));
}
