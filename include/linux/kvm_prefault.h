/* SPDX-License-Identifier: GPL-2.0 */
/*
 * KVM prefault: map what the host already has around a guest fault.
 *
 * virt/kvm/prefault.c explains the engine.  This header has what the rest of
 * KVM needs to call it, what an architecture has to provide for it, and the
 * arithmetic of the window, which depends on neither.
 */
#ifndef __KVM_PREFAULT_H
#define __KVM_PREFAULT_H

#include <linux/bitmap.h>
#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/kvm_prefault_policy.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <linux/kvm_types.h>

struct kvm;
struct kvm_enable_cap;
struct kvm_memory_slot;
struct kvm_vcpu;

/*
 * Upper bounds of one attempt.  A window never holds more entries than this,
 * and as it is aligned to its size, all of them lie in one table: of pages, or
 * of huge pages.
 */
#define KVM_PREFAULT_PAGES_MAX	512

/* Pages that are looked up and then installed in one hold of mmu_lock. */
#define KVM_PREFAULT_BATCH	64

/* Largest window, in bytes, that any architecture may offer. */
#define KVM_PREFAULT_SIZE_MAX	SZ_1G

/*
 * kvm->auto_prefault is one word, so that a fault reads size and flags
 * together: the window in bytes (a power of two, or 0 for off) and these.
 */
#define KVM_PREFAULT_FIXED	BIT(0)	/* always the whole window */
#define KVM_PREFAULT_SET	BIT(1)	/* negotiated: 0 bytes really means off */
#define KVM_PREFAULT_FLAGS	(KVM_PREFAULT_FIXED | KVM_PREFAULT_SET)

/**
 * struct kvm_prefault_window - a range of gfns of one memslot
 * @gfn: first gfn
 * @nr: number of pages, or huge pages, 1 to KVM_PREFAULT_PAGES_MAX
 */
struct kvm_prefault_window {
	gfn_t gfn;
	unsigned int nr;
};

/* Why an attempt ended; the names are those of the tracepoint. */
enum kvm_prefault_stop {
	KVM_PREFAULT_DONE,	/* the whole window was served */
	KVM_PREFAULT_NO_HOLE,	/* everything was mapped already, or no table */
	KVM_PREFAULT_ABSENT,	/* the host has none of the holes' pages */
	KVM_PREFAULT_BUSY,	/* signal, reschedule or mmu_lock contention */
	KVM_PREFAULT_STALE,	/* invalidation, obsolete root or memslot */
};

/**
 * struct kvm_prefault - one attempt
 * @slot: memslot of the window, valid within the caller's kvm->srcu section
 * @window: the gfns to serve
 * @mmu_seq: kvm->mmu_invalidate_seq, sampled before anything else was read
 * @order: 0, or the log2 of a huge page's pages if those are to be mapped: they
 *	   are what "page" means below then
 * @may_ro: pages that the host maps read-only are wanted, too
 * @stop: why the attempt ended
 * @mapped: number of pages that have been mapped
 * @found: number of pages that the host had for holes
 * @absent: number of pages that the host does not have
 * @first: the first page that was mapped, if any; counts from window.gfn
 * @last: the last one
 * @present: bit n is set if the host may have page n
 * @holes: bit n is set if page n is to be mapped
 * @ro: bit n is set if the host has the page of a hole, but read-only
 */
struct kvm_prefault {
	const struct kvm_memory_slot *slot;
	struct kvm_prefault_window window;
	unsigned long mmu_seq;
	u8 order;
	bool may_ro;
	enum kvm_prefault_stop stop;
	unsigned int mapped;
	unsigned int found;
	unsigned int absent;
	u16 first;
	u16 last;
	DECLARE_BITMAP(present, KVM_PREFAULT_PAGES_MAX);
	DECLARE_BITMAP(holes, KVM_PREFAULT_PAGES_MAX);
	DECLARE_BITMAP(ro, KVM_PREFAULT_PAGES_MAX);
};

/**
 * struct kvm_prefault_batch - host pages to install in one hold of mmu_lock
 * @nr: number of pages, at most KVM_PREFAULT_BATCH
 * @mapped: number of pages that the architecture installed
 * @writable: the host maps these pages writable now
 * @index: page n is the window's page index[n]; ascending
 * @pfn: the pages; not referenced: see kvm_prefault_select()
 */
struct kvm_prefault_batch {
	unsigned int nr;
	unsigned int mapped;
	bool writable;
	u16 index[KVM_PREFAULT_BATCH];
	unsigned long pfn[KVM_PREFAULT_BATCH];
};

/* The first gfn of page @n of the window. */
static inline gfn_t kvm_prefault_gfn(const struct kvm_prefault *p, unsigned int n)
{
	return p->window.gfn + ((gfn_t)n << p->order);
}

/**
 * kvm_prefault_window() - the window of a fault
 * @gfn: gfn that faulted, inside the memslot
 * @nr: wanted length in pages, a power of two
 * @base: first gfn of the memslot
 * @npages: length of the memslot in pages
 *
 * The window is the aligned block of @nr pages that holds @gfn, cut at the
 * edges of the memslot, and cut down to KVM_PREFAULT_PAGES_MAX beforehand.
 *
 * Return: the window; it holds @gfn.
 */
static inline struct kvm_prefault_window
kvm_prefault_window(gfn_t gfn, u64 nr, gfn_t base, u64 npages)
{
	struct kvm_prefault_window w;
	gfn_t end;

	nr = min_t(u64, nr, KVM_PREFAULT_PAGES_MAX);
	w.gfn = gfn & ~(nr - 1);
	end = min(w.gfn + nr, base + npages);
	w.gfn = max(w.gfn, base);
	w.nr = end - w.gfn;

	return w;
}

/**
 * kvm_prefault_huge_window() - the window of a fault that mapped a huge page
 * @gfn: gfn that faulted, inside a huge page inside the memslot
 * @nr: wanted length in huge pages, a power of two
 * @order: log2 of the pages of a huge page
 * @base: first gfn of the memslot
 * @npages: length of the memslot in pages
 *
 * As kvm_prefault_window(), in huge pages.  Those that the memslot holds only a
 * part of are left out.
 *
 * Return: the window, its length in huge pages.
 */
static inline struct kvm_prefault_window
kvm_prefault_huge_window(gfn_t gfn, u64 nr, unsigned int order, gfn_t base, u64 npages)
{
	gfn_t first = (base + (1ULL << order) - 1) >> order;
	gfn_t end = (base + npages) >> order;
	struct kvm_prefault_window w;

	w = kvm_prefault_window(gfn >> order, nr, first, end - first);
	w.gfn <<= order;

	return w;
}

/**
 * kvm_prefault_size_valid() - may this be negotiated as a window?
 * @size: window in bytes
 * @max: the largest window that is served, in bytes
 *
 * Return: true for 0 (off) and for a power of two from two pages to @max.
 */
static inline bool kvm_prefault_size_valid(u64 size, u64 max)
{
	if (!size)
		return true;

	return is_power_of_2(size) && size >= 2 * PAGE_SIZE && size <= max;
}

/*
 * Entries that are looked at together: most of a window is either mapped already
 * or not there yet.  The bits of a group are in one word.
 */
#define KVM_PREFAULT_GROUP	8
#define KVM_PREFAULT_GROUP_MASK	GENMASK(KVM_PREFAULT_GROUP - 1, 0)

static __always_inline u64 kvm_prefault_peek(const void *table, size_t size,
					     unsigned int i)
{
	const u64 *e64 = table;
	const u32 *e32 = table;

	/* A hint: what is decided by it is checked again. */
	return data_race(size == sizeof(*e64) ? e64[i] : e32[i]);
}

/* The bits that every entry of a group has. */
static __always_inline u64 kvm_prefault_peek_all(const void *table, size_t size)
{
	return kvm_prefault_peek(table, size, 0) & kvm_prefault_peek(table, size, 1) &
	       kvm_prefault_peek(table, size, 2) & kvm_prefault_peek(table, size, 3) &
	       kvm_prefault_peek(table, size, 4) & kvm_prefault_peek(table, size, 5) &
	       kvm_prefault_peek(table, size, 6) & kvm_prefault_peek(table, size, 7);
}

/* The bits that one of them has. */
static __always_inline u64 kvm_prefault_peek_any(const void *table, size_t size)
{
	return kvm_prefault_peek(table, size, 0) | kvm_prefault_peek(table, size, 1) |
	       kvm_prefault_peek(table, size, 2) | kvm_prefault_peek(table, size, 3) |
	       kvm_prefault_peek(table, size, 4) | kvm_prefault_peek(table, size, 5) |
	       kvm_prefault_peek(table, size, 6) | kvm_prefault_peek(table, size, 7);
}

/* Returns a bit for each entry of a group that has none of the bits @used. */
static __always_inline unsigned long
kvm_prefault_group_holes(const void *table, size_t size, u64 present, u64 used)
{
	unsigned long holes = 0;
	unsigned int i;

	if (kvm_prefault_peek_all(table, size) & present)
		return 0;

	/* Rather read them again than keep all of them in registers. */
	barrier();
	if (!(kvm_prefault_peek_any(table, size) & used))
		return KVM_PREFAULT_GROUP_MASK;

	for (i = 0; i < KVM_PREFAULT_GROUP; i++)
		holes |= (unsigned long)!(kvm_prefault_peek(table, size, i) & used) << i;

	return holes;
}

/* The same for the entries of @todo, all of which are among its first @nr bits. */
static __always_inline unsigned long
kvm_prefault_word_holes(const void *table, size_t size, unsigned long todo,
			unsigned int nr, u64 present, u64 used)
{
	unsigned long holes = 0, groups = todo;
	unsigned int i;

	for (i = 0; i + KVM_PREFAULT_GROUP <= nr; i += KVM_PREFAULT_GROUP) {
		if (groups & KVM_PREFAULT_GROUP_MASK)
			holes |= kvm_prefault_group_holes(table, size, present, used) << i;

		groups >>= KVM_PREFAULT_GROUP;
		table += KVM_PREFAULT_GROUP * size;
	}

	for (; i < nr; i++, table += size)
		holes |= (unsigned long)!(kvm_prefault_peek(table, size, 0) & used) << i;

	return holes & todo;
}

/**
 * kvm_prefault_find_holes() - note the holes where the host may have pages
 * @p: the attempt
 * @table: the last-level entry of the window's first gfn
 * @size: size of an entry in bytes, 4 or 8
 * @present: a bit that every entry that maps a page has
 * @used: an entry with one of these bits is no hole
 *
 * Context: whatever keeps the table from being freed.
 */
static __always_inline void
kvm_prefault_find_holes(struct kvm_prefault *p, const void *table, size_t size,
			u64 present, u64 used)
{
	unsigned int i, nr = p->window.nr;
	unsigned long todo;

	for (i = 0; i < nr / BITS_PER_LONG; i++, table += BITS_PER_LONG * size) {
		todo = p->present[i];
		if (todo)
			p->holes[i] = kvm_prefault_word_holes(table, size, todo,
							      BITS_PER_LONG,
							      present, used);
	}

	if (nr % BITS_PER_LONG)
		p->holes[i] = kvm_prefault_word_holes(table, size, p->present[i],
						      nr % BITS_PER_LONG,
						      present, used);
}

/**
 * kvm_prefault_enabled() - is there a window?
 * @config: kvm->auto_prefault, read once
 *
 * Return: true unless its size is 0.
 */
static inline bool kvm_prefault_enabled(unsigned long config)
{
	return config & ~KVM_PREFAULT_FLAGS;
}

#ifdef CONFIG_KVM_GENERIC_PREFAULT

void kvm_prefault_init_vm(struct kvm *kvm);
long kvm_prefault_check_extension(struct kvm *kvm);
int kvm_prefault_enable_cap(struct kvm *kvm, const struct kvm_enable_cap *cap);

void __kvm_auto_prefault(struct kvm_vcpu *vcpu,
			 const struct kvm_memory_slot *slot, gfn_t gfn,
			 bool may_ro, unsigned long config);
void kvm_auto_prefault_huge(struct kvm_vcpu *vcpu,
			    const struct kvm_memory_slot *slot, gfn_t gfn,
			    unsigned int order, bool may_ro, unsigned long config);
void kvm_auto_prefault_within(struct kvm_vcpu *vcpu,
			      const struct kvm_memory_slot *slot, gfn_t gfn,
			      struct kvm_prefault_window within,
			      unsigned long mmu_seq, bool may_ro,
			      unsigned long config);

unsigned int kvm_prefault_resident(struct kvm_vcpu *vcpu, gfn_t gfn, u64 nr);
unsigned int kvm_prefault_resident_within(struct kvm_vcpu *vcpu,
					  struct kvm_prefault *p);

void kvm_prefault_select(struct kvm_prefault_batch *batch, bool writable);

/**
 * kvm_arch_prefault_max_size() - the largest window this VM can be given
 * @kvm: the VM, or NULL to ask for the architecture's maximum
 *
 * Return: size in bytes, a power of two; 0 where @kvm can never prefault.
 */
unsigned long kvm_arch_prefault_max_size(struct kvm *kvm);

/**
 * kvm_arch_prefault_holes() - find what is not mapped in a window
 * @vcpu: the vCPU whose page tables are meant
 * @p: the attempt; window, slot, mmu_seq and @present are set, @holes is zero;
 *     @order is 0 unless the architecture calls kvm_auto_prefault_huge()
 *
 * What is not @present is no hole and need not be looked at.
 *
 * Called without mmu_lock, so this is a first look only: what it finds is
 * checked again by kvm_arch_prefault_map().  Gfns that must not be prefaulted,
 * e.g. private memory, are no holes.
 *
 * Return: false if the window has no table to install into.
 */
bool kvm_arch_prefault_holes(struct kvm_vcpu *vcpu, struct kvm_prefault *p);

/**
 * kvm_arch_prefault_map() - install a batch
 * @vcpu: the vCPU whose page tables are meant
 * @p: the attempt; @p->stop is set if the rest of it is to be dropped
 * @batch: the pages; @batch->mapped is counted up
 *
 * Takes mmu_lock, and under it checks the whole batch again: root, and any
 * invalidation of the window's range since @p->mmu_seq.  Calls
 * kvm_prefault_select() before it does anything with a page, installs into empty
 * entries only, and marks no gfn dirty.
 */
void kvm_arch_prefault_map(struct kvm_vcpu *vcpu, struct kvm_prefault *p,
			   struct kvm_prefault_batch *batch);

#else /* !CONFIG_KVM_GENERIC_PREFAULT */

static inline void kvm_prefault_init_vm(struct kvm *kvm)
{
}

static inline long kvm_prefault_check_extension(struct kvm *kvm)
{
	return 0;
}

static inline int kvm_prefault_enable_cap(struct kvm *kvm,
					  const struct kvm_enable_cap *cap)
{
	return -EINVAL;
}

#endif /* CONFIG_KVM_GENERIC_PREFAULT */

#endif /* __KVM_PREFAULT_H */
