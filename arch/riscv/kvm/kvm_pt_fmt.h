/* SPDX-License-Identifier: GPL-2.0 */
/*
 * PTEs of the G-stage, for include/linux/kvm_pt_iter.h
 *
 * Formats Sv32x4, Sv39x4, Sv48x4 and Sv57x4 of the hypervisor extension.  Tables
 * are freed with mmu_lock held for write only, so a walk needs mmu_lock, in
 * either mode.
 *
 * Bits 8 and 9, RSW, are ignored by hardware.  Leaves use bit 8
 * (KVM_GSTAGE_HOST_WRITABLE) and never bit 9, tables bit 9 as the hint.
 */
#ifndef __RISCV_KVM_PT_FMT_H
#define __RISCV_KVM_PT_FMT_H

#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/pgtable.h>

#include <asm/kvm_gstage.h>

typedef unsigned long kvm_pt_entry_t;

/**
 * struct kvm_pt_ctx - what a walk of the G-stage needs to know
 * @kvm: whose mmu_lock somebody may wait for
 * @root_level: level of the table that the walk starts with
 * @root_lg2: its index bits, more than others have if it is the pgd
 */
struct kvm_pt_ctx {
	struct kvm *kvm;
	u8 root_level;
	u8 root_lg2;
};

#ifdef CONFIG_64BIT
#define KVM_PT_MAX_LEVELS	5
#else
#define KVM_PT_MAX_LEVELS	2
#endif
#define KVM_PT_INDEX_LG2	kvm_riscv_gstage_index_bits
#define KVM_PT_LIVE_LG2		0
#define KVM_PT_HINT_LG2		9
#define KVM_PT_FLAGS		(KVM_PT_TABLES | KVM_PT_TABLES_AFTER |		\
				 KVM_PT_PAUSES | KVM_PT_HINTS | KVM_PT_LEARN)

static_assert(BIT(KVM_PT_LIVE_LG2) == _PAGE_PRESENT);
static_assert((BIT(KVM_PT_HINT_LG2) | KVM_GSTAGE_HOST_WRITABLE) == _PAGE_SOFT);

static __always_inline unsigned long kvm_pt_read(unsigned long *ptep)
{
	return READ_ONCE(*ptep);
}

static __always_inline bool kvm_pt_is_leaf(unsigned long pte, unsigned int level)
{
	return !level || pte & _PAGE_LEAF;
}

static __always_inline unsigned long *kvm_pt_child(const struct kvm_pt_ctx *ctx,
						   unsigned long pte, unsigned int level)
{
	return pfn_to_virt(__page_val_to_pfn(pte));
}

static __always_inline unsigned int kvm_pt_index(const struct kvm_pt_ctx *ctx, u64 gfn,
						 unsigned int level)
{
	unsigned int lg2 = level == ctx->root_level ? ctx->root_lg2 : KVM_PT_INDEX_LG2;

	return gfn >> (level * KVM_PT_INDEX_LG2) & (BIT(lg2) - 1);
}

static __always_inline unsigned int kvm_pt_root_lg2(const struct kvm_pt_ctx *ctx)
{
	return ctx->root_lg2;
}

static __always_inline bool kvm_pt_try_cmpxchg(unsigned long *ptep, unsigned long *old,
					       unsigned long new)
{
	return try_cmpxchg(ptep, old, new);
}

#define kvm_pt_pause kvm_pt_pause
static __always_inline bool kvm_pt_pause(const struct kvm_pt_ctx *ctx)
{
	return need_resched() || rwlock_needbreak(&ctx->kvm->mmu_lock);
}

#ifdef CONFIG_DEBUG_VM
#define KVM_PT_PROVE(ok)	WARN_ON_ONCE(!(ok))
#endif

#endif /* __RISCV_KVM_PT_FMT_H */
