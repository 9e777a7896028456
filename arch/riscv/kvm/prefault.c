// SPDX-License-Identifier: GPL-2.0
/*
 * KVM prefault on riscv: what virt/kvm/prefault.c needs to know of the G-stage
 *
 * A window never leaves the last-level table that the fault used, so that no
 * table has to be allocated, and one descent serves a whole batch.  Last-level
 * tables are freed with mmu_lock held for write only: holding it for read is
 * enough to look at one.
 *
 * New entries are young (A is set), as hardware may trap on a clear A bit, and
 * D is always set.  In a memslot whose dirty pages are logged they are not
 * writable: the first write takes the dirty log's fast path, which marks
 * exactly that page.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kvm_host.h>
#include <linux/kvm_prefault.h>

#include <asm/kvm_gstage.h>
#include <asm/kvm_mmu.h>
#include <asm/kvm_tlb.h>

unsigned long kvm_arch_prefault_max_size(struct kvm *kvm)
{
	return KVM_PREFAULT_PAGES_MAX * PAGE_SIZE;
}

/**
 * __kvm_riscv_auto_prefault() - prefault around a fault if it is of a kind
 *				 whose neighbours can be mapped
 * @vcpu: the vCPU that faulted
 * @fault: the fault, fixed, its page already released
 * @config: kvm->auto_prefault, read once; there is a window
 */
void __kvm_riscv_auto_prefault(struct kvm_vcpu *vcpu,
			       struct kvm_riscv_fault *fault,
			       unsigned long config)
{
	/* A huge page leaves nothing to do, a PFN mapping has no pages. */
	if (fault->level || !fault->has_page)
		return;

	/*
	 * Read-only mappings cost a zap and a flush when the host breaks CoW.
	 * They are worth it where the guest just showed that it reads there.
	 */
	__kvm_auto_prefault(vcpu, fault->slot, fault->gpa >> PAGE_SHIFT,
			    !fault->write && !fault->host_writable, config);
}

/*
 * Returns the last-level entry of the window's first gfn, NULL if there is no
 * such table.
 */
static pte_t *window_ptep(struct kvm *kvm, const struct kvm_prefault *p)
{
	struct kvm_gstage gstage;

	lockdep_assert_held(&kvm->mmu_lock);

	if (!kvm->arch.pgd)
		return NULL;

	kvm_riscv_gstage_init(&gstage, kvm);
	return kvm_riscv_gstage_last_level_ptep(&gstage, p->window.gfn << PAGE_SHIFT);
}

bool kvm_arch_prefault_holes(struct kvm_vcpu *vcpu, struct kvm_prefault *p)
{
	struct kvm *kvm = vcpu->kvm;
	pte_t *ptep;

	read_lock(&kvm->mmu_lock);

	ptep = window_ptep(kvm, p);
	if (ptep)
		kvm_prefault_find_holes(p, ptep, sizeof(*ptep), _PAGE_PRESENT, ~0ULL);

	read_unlock(&kvm->mmu_lock);

	return ptep;
}

/* Installs into entries that are still empty: whoever was first has won. */
static void install_batch(pte_t *ptep, struct kvm_prefault_batch *batch,
			  bool writable)
{
	/* What does not depend on the page. */
	pte_t leaf = kvm_riscv_gstage_leaf(0, writable, batch->writable);
	unsigned int i, nr, mapped = 0;
	unsigned long pte;

	kvm_prefault_select(batch, batch->writable);

	for (i = 0, nr = batch->nr; i < nr; i++) {
		pte = pte_val(pfn_pte(batch->pfn[i], __pgprot(pte_val(leaf))));
		if (!cmpxchg_relaxed(&pte_val(ptep[batch->index[i]]), 0, pte))
			mapped++;
	}
	batch->mapped += mapped;
}

void kvm_arch_prefault_map(struct kvm_vcpu *vcpu, struct kvm_prefault *p,
			   struct kvm_prefault_batch *batch)
{
	gfn_t start = p->window.gfn + batch->index[0];
	gfn_t end = p->window.gfn + batch->index[batch->nr - 1] + 1;
	struct kvm *kvm = vcpu->kvm;
	pte_t *ptep;

	read_lock(&kvm->mmu_lock);

	ptep = window_ptep(kvm, p);
	if (!ptep || mmu_invalidate_retry_gfn_range(kvm, p->mmu_seq, start, end))
		p->stop = KVM_PREFAULT_STALE;
	else
		install_batch(ptep, batch, batch->writable &&
			      !kvm_slot_dirty_track_enabled(p->slot));

	read_unlock(&kvm->mmu_lock);

	/* Other vCPUs take a spurious fault if they have seen empty entries. */
	if (batch->mapped && !kvm_riscv_gstage_has_svvptc())
		kvm_riscv_vcpu_hfence_gvma(vcpu, start << PAGE_SHIFT,
					   (end - start) << PAGE_SHIFT);
}
