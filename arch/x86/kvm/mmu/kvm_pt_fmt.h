/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SPTEs of the TDP MMU, for include/linux/kvm_pt_iter.h
 *
 * That counts levels from 0, KVM's MMUs count them from PG_LEVEL_4K.  Tables are
 * protected by RCU, so a walk must not outlive its read-side critical section.
 *
 * Live is what is shadow-present, which includes SPTEs that hardware does not
 * see because their accesses are tracked.  MMIO SPTEs and frozen ones are absent.
 */
#ifndef __KVM_X86_MMU_KVM_PT_FMT_H
#define __KVM_X86_MMU_KVM_PT_FMT_H

#include <linux/kvm_host.h>

#include "spte.h"

typedef u64 kvm_pt_entry_t;

/**
 * struct kvm_pt_ctx - what a walk of the TDP MMU needs to know
 * @kvm: whose mmu_lock somebody may wait for
 * @gfn_bits: see struct tdp_iter
 */
struct kvm_pt_ctx {
	struct kvm *kvm;
	gfn_t gfn_bits;
};

#define KVM_PT_MAX_LEVELS	PT64_ROOT_MAX_LEVEL
#define KVM_PT_INDEX_LG2	SPTE_LEVEL_BITS
#define KVM_PT_LIVE_LG2		11
#define KVM_PT_HINT_LG2		SPTE_EMPTY_SHIFT
#define KVM_PT_FLAGS		(KVM_PT_TABLES | KVM_PT_PAUSES | KVM_PT_HINTS |	\
				 KVM_PT_LEARN | KVM_PT_UNLOCKED)

static_assert(BIT_ULL(KVM_PT_LIVE_LG2) == SPTE_MMU_PRESENT_MASK);

static __always_inline u64 kvm_pt_read(u64 *sptep)
{
	return READ_ONCE(*sptep);
}

#define kvm_pt_peek kvm_pt_peek
static __always_inline u64 kvm_pt_peek(u64 *sptep)
{
	/* Can be an operand of OR, which a volatile access cannot. */
	return data_race(*sptep);
}

static __always_inline bool kvm_pt_is_leaf(u64 spte, unsigned int level)
{
	return is_last_spte(spte, level + PG_LEVEL_4K);
}

static __always_inline u64 *kvm_pt_child(const struct kvm_pt_ctx *ctx, u64 spte,
					 unsigned int level)
{
	tdp_ptep_t pt = (tdp_ptep_t)__va(spte_to_pfn(spte) << PAGE_SHIFT);

	return rcu_dereference(pt);
}

static __always_inline unsigned int kvm_pt_index(const struct kvm_pt_ctx *ctx, gfn_t gfn,
						 unsigned int level)
{
	return SPTE_INDEX((gfn | ctx->gfn_bits) << PAGE_SHIFT, level + PG_LEVEL_4K);
}

static __always_inline unsigned int kvm_pt_root_lg2(const struct kvm_pt_ctx *ctx)
{
	return SPTE_LEVEL_BITS;
}

static __always_inline bool kvm_pt_try_cmpxchg(u64 *sptep, u64 *old, u64 new)
{
	return try_cmpxchg64(sptep, old, new);
}

#define kvm_pt_pause kvm_pt_pause
static __always_inline bool kvm_pt_pause(const struct kvm_pt_ctx *ctx)
{
	return need_resched() || rwlock_needbreak(&ctx->kvm->mmu_lock);
}

#ifdef CONFIG_KVM_PROVE_MMU
#define KVM_PT_PROVE(ok)	KVM_MMU_WARN_ON(!(ok))
#endif

#endif /* __KVM_X86_MMU_KVM_PT_FMT_H */
