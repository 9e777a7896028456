/* SPDX-License-Identifier: GPL-2.0 */
/*
 * KVM prefault: how large a window is worth its cost
 *
 * DOC: Policy of adaptive windows
 *
 * Mapping a page ahead costs about a fourteenth of the exit that it saves, so a
 * window pays if the guest is going to use one page in fourteen of it.  Nobody
 * can tell when the first fault of a region comes in, so the policy asks at
 * each later one: would an earlier window have saved this fault, had it been
 * twice as large?  If it would, the memory around it is being used densely.
 *
 *   recent   The blocks of the last few windows, and of faults that were left
 *            alone, are remembered.  A fault in the other half of the block
 *            that is twice as large is the evidence.  Its window is one order
 *            larger than the one that it was found by, so that a stream, in
 *            either direction and interleaved with others, soon runs at the
 *            full window.  Blocks that have proved themselves once are extended
 *            by what touches them at either end, too.
 *   order    How far to go where nothing is known: the window of a fault far
 *            from all recent blocks.  It goes up for each block that proves
 *            itself, and down when that many pages have been mapped by windows
 *            that were forgotten before they did.  Where even the smallest
 *            window does not pay, none is made and faults are only remembered.
 *            This takes care of dense access in random order, where the guest
 *            meets the same region again long before it has used it all.
 *   extent   What was mapped may lie in a small part of the window: the host
 *            has no more, e.g. as it restores memory in chunks.  There is no
 *            use in looking further next time.
 *   backoff  Windows that map nothing at all are followed by faults that are
 *            left alone without any look, 1, 2, 4 and so on up to 64.
 *
 * Huge pages have a policy of their own, for which they are the pages: one is
 * mapped ahead at about the same cost as a page, and it saves the same exit.
 *
 * The functions here are pure: lab/sim runs the same code on synthetic traces,
 * and bench/POLICY.md has the figures that the constants were chosen by.
 */
#ifndef __KVM_PREFAULT_POLICY_H
#define __KVM_PREFAULT_POLICY_H

#include <linux/bitops.h>
#include <linux/bits.h>
#include <linux/minmax.h>
#include <linux/types.h>

/* The smallest adaptive window, in log2 of pages, and the first one. */
#define KVM_PREFAULT_ORDER_MIN		3

/* The largest one; windows that are negotiated larger are cut to it. */
#define KVM_PREFAULT_ORDER_MAX		9

/* Most faults in a row that are left alone after windows that mapped nothing. */
#define KVM_PREFAULT_BACKOFF_MAX	64

/* Blocks that are remembered. */
#define KVM_PREFAULT_RECENT		16

/*
 * Pages of windows that were forgotten before they had proved themselves, until
 * the order goes down: from orders above the smallest one, and from that one to
 * none.
 */
#define KVM_PREFAULT_PATIENCE		1024
#define KVM_PREFAULT_PATIENCE_MIN	64

/* A stride up to which it pays to map what lies in between, in pages. */
#define KVM_PREFAULT_STRIDE_MAX		16

/**
 * struct kvm_prefault_block - where a window was, or could have been
 * @base: first gfn of those that the block can be extended by, and its own
 * @span: number of these gfns, 0 if there is no block
 * @order: log2 of the block's pages
 * @proved: it has been extended
 * @mapped: its window has mapped something
 */
struct kvm_prefault_block {
	u64 base;
	u16 span;
	u8 order;
	bool proved;
	bool mapped;
};

/**
 * struct kvm_prefault_policy - what a vCPU remembers of its last windows
 * @recent: blocks, the newest one before @next
 * @last: gfn of the last fault that was looked at
 * @next: index of the oldest one in @recent
 * @level: order of windows at new places, above KVM_PREFAULT_ORDER_MIN;
 *	   negative where there are none
 * @backoff: length of the current back-off, in faults; 0 after a hit
 * @skip: faults of the current back-off that are still to be left alone
 * @wasted: pages of windows that count against @level
 *
 * Only the vCPU itself reads or writes it, under vcpu->mutex.
 */
struct kvm_prefault_policy {
	struct kvm_prefault_block recent[KVM_PREFAULT_RECENT];
	u64 last;
	u8 next;
	s8 level;
	u8 backoff;
	u8 skip;
	u16 wasted;
};

/*
 * Sets the size of the block around @gfn.  It would have covered what is in the
 * other half of the block that is twice as large.  A proved block can be
 * extended in both directions, wherever it is aligned.
 */
static inline void kvm_prefault_size_block(struct kvm_prefault_block *block,
					   u64 gfn, unsigned int order)
{
	u64 nr = 1ULL << order;

	block->order = order;
	if (block->proved) {
		block->base = (gfn & ~(nr - 1)) - nr;
		block->span = 3 * nr;
	} else {
		block->base = gfn & ~(2 * nr - 1);
		block->span = 2 * nr;
	}
}

static inline bool kvm_prefault_block_meets(const struct kvm_prefault_block *block,
					    u64 gfn)
{
	return gfn - block->base < block->span;
}

static inline unsigned int
kvm_prefault_newest_block(const struct kvm_prefault_policy *policy)
{
	return (policy->next + KVM_PREFAULT_RECENT - 1) % KVM_PREFAULT_RECENT;
}

/* The index of a recent block that @gfn extends, or a negative number. */
static inline int kvm_prefault_find_block(const struct kvm_prefault_policy *policy,
					  u64 gfn)
{
	unsigned int newest = kvm_prefault_newest_block(policy);
	int i;

	/* After a stride, the gaps are worth mapping. */
	if (gfn - policy->last + KVM_PREFAULT_STRIDE_MAX <= 2 * KVM_PREFAULT_STRIDE_MAX &&
	    policy->recent[newest].span)
		return newest;

	for (i = 0; i < KVM_PREFAULT_RECENT; i++)
		if (kvm_prefault_block_meets(&policy->recent[i], gfn))
			return i;

	return -1;
}

/* A block at a new place was worth more than it was given. */
static inline void kvm_prefault_block_proves(struct kvm_prefault_policy *policy,
					     const struct kvm_prefault_block *block)
{
	if (block->proved)
		return;

	policy->wasted = 0;
	if (policy->level + KVM_PREFAULT_ORDER_MIN <= block->order + 1)
		policy->level = max(policy->level + 2, 1);
}

/* A block goes; its window was a waste if nobody came back to it. */
static inline void kvm_prefault_forget_block(struct kvm_prefault_policy *policy,
					     const struct kvm_prefault_block *block)
{
	unsigned int patience = policy->level > 0 ? KVM_PREFAULT_PATIENCE :
						    KVM_PREFAULT_PATIENCE_MIN;

	if (!block->mapped || block->proved)
		return;

	policy->wasted += 1U << block->order;
	if (policy->wasted < patience)
		return;

	policy->wasted = 0;
	if (policy->level >= 0)
		policy->level--;
}

/**
 * kvm_prefault_policy_begin() - choose the window of a fault
 * @policy: what the vCPU remembers
 * @gfn: gfn that faulted
 * @max: log2 of the pages of the negotiated window
 *
 * Return: log2 of the pages of the window, 0 if there is to be none.  After the
 *	   window has been served, kvm_prefault_policy_end() takes in what came of it.
 */
static inline unsigned int
kvm_prefault_policy_begin(struct kvm_prefault_policy *policy, u64 gfn,
			  unsigned int max)
{
	struct kvm_prefault_block *oldest = &policy->recent[policy->next], *block;
	int found = kvm_prefault_find_block(policy, gfn);
	unsigned int order;

	max = min(max, KVM_PREFAULT_ORDER_MAX);

	if (found >= 0) {
		block = &policy->recent[found];
		order = block->order + 1;
		if (kvm_prefault_block_meets(block, gfn))
			kvm_prefault_block_proves(policy, block);
		*block = *oldest;
	} else {
		order = policy->level < 0 ? 0 : policy->level + KVM_PREFAULT_ORDER_MIN;
		kvm_prefault_forget_block(policy, oldest);
	}

	order = min(order, max);
	oldest->proved = found >= 0;
	oldest->mapped = false;
	kvm_prefault_size_block(oldest, gfn, order ?: min(max, KVM_PREFAULT_ORDER_MIN));

	policy->last = gfn;
	policy->next = (policy->next + 1) % KVM_PREFAULT_RECENT;

	return order;
}

/**
 * kvm_prefault_policy_end() - learn from a window
 * @policy: what the vCPU remembers
 * @gfn: gfn that faulted
 * @first: the first gfn that the window has mapped
 * @last: the last one
 * @mapped: number of pages that the window has mapped; if it is 0, @first and
 *	    @last have no meaning
 * @absent: number of pages that the host did not have
 *
 * Every window in a row that maps nothing doubles the back-off; the first hit
 * ends it.
 */
static inline void
kvm_prefault_policy_end(struct kvm_prefault_policy *policy, u64 gfn, u64 first,
			u64 last, unsigned int mapped, unsigned int absent)
{
	struct kvm_prefault_block *newest =
		&policy->recent[kvm_prefault_newest_block(policy)];
	unsigned int order = newest->order, extent;

	if (!mapped) {
		policy->backoff = clamp(policy->backoff * 2, 1,
					KVM_PREFAULT_BACKOFF_MAX);
		policy->skip = policy->backoff;
		extent = 0;
	} else {
		policy->backoff = 0;
		extent = fls64((gfn ^ first) | (gfn ^ last));
		newest->mapped = true;
	}

	extent = max(extent, KVM_PREFAULT_ORDER_MIN);
	if (extent >= order)
		return;

	kvm_prefault_size_block(newest, gfn, extent);
	if (absent && !newest->proved)
		policy->level = extent - KVM_PREFAULT_ORDER_MIN;
}

/**
 * kvm_prefault_backoff() - is this fault to be left alone?
 * @policy: what the vCPU remembers
 *
 * Return: true if the fault belongs to a back-off; it has then been counted.
 */
static inline bool kvm_prefault_backoff(struct kvm_prefault_policy *policy)
{
	if (likely(!policy->skip))
		return false;

	policy->skip--;
	return true;
}

#endif /* __KVM_PREFAULT_POLICY_H */
