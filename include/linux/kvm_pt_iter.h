/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Walk what is present in a KVM page table, and remember what is empty.
 *
 * Unmapping, write-protecting and ageing have nothing to do at an entry that
 * maps nothing, but most of the entries they meet may be of that kind.  This
 * walker looks at a cache line of entries at a time and stops only where
 * something is mapped.
 *
 * Levels count from 0, the last-level table.  Positions are in pages of the
 * last level (gfns).  An entry is *live* if it maps something for KVM: a leaf
 * or a table.  Everything else, including values that an architecture keeps in
 * entries which map nothing, is absent.
 *
 * Empty-table hint
 * ----------------
 *
 * A format may name a software bit of table entries, the hint:
 *
 *	While an entry has it, there is no live leaf anywhere below the entry.
 *
 * Tables below may exist, and an entry without it says nothing.  A walker that
 * asks for it (KVM_PT_HINTS) steps over such entries as if they were absent.
 * The rules that keep this true:
 *
 *  - Set: only with mmu_lock held for write, and only by a walk that has passed
 *    all entries of the table below in one uninterrupted hold of the lock and
 *    found each of them, as it was left, absent or hinted (KVM_PT_LEARN).
 *    After the lock has been dropped the walk restarts and proves anew.
 *
 *  - Clear: whoever makes a leaf live descends from the root, clears the hint
 *    of each entry passed with kvm_pt_clear_hint(), and only then installs, all
 *    in one hold of mmu_lock, for read or write.
 *
 *  - Use: walks with mmu_lock held, in either mode; without it those that may
 *    miss a leaf, like ageing.  Freeing tables must not use it.
 *
 *  - Replace: an entry that turns from table into leaf or back is made from
 *    scratch.  The hint is never set in a leaf.
 *
 * Setters exclude clearers, so no hint can appear between the clearing and the
 * install, nor be true of a table that a fault has filled during a yield.
 * tools/testing/kvm_pt/ has a model of this, and mutants that fail in it.
 *
 * Formats
 * -------
 *
 * A format is a header that is included first and defines
 *
 *	kvm_pt_entry_t			integer type of an entry
 *	struct kvm_pt_ctx		what its functions need to know
 *	KVM_PT_MAX_LEVELS		most levels that a table can have
 *	KVM_PT_INDEX_LG2		index bits of all levels but the root
 *	KVM_PT_LIVE_LG2			the bit that live entries have
 *	KVM_PT_HINT_LG2			the hint, above KVM_PT_LIVE_LG2; leaves of
 *					level 1 and up must never have it set.
 *					Not defined: no hints
 *	kvm_pt_read(ptep)		reads an entry, once
 *	kvm_pt_peek(ptep)		optional, with a #define of that name: reads an
 *					entry to see whether it is live, as it was at
 *					any time since the last event; if so it is read
 *					again.  For compilers that make more of a plain
 *					load
 *	kvm_pt_is_leaf(e, level)	of a live entry: is it a leaf?
 *	kvm_pt_child(ctx, e, level)	the table that a table entry points to
 *	kvm_pt_index(ctx, pos, level)	index of @pos in its table of that level
 *	kvm_pt_root_lg2(ctx)		index bits of the root
 *	kvm_pt_try_cmpxchg(ptep, old, new)	fully ordered if it succeeds; only
 *					with hints
 *	kvm_pt_pause(ctx)		optional, with a #define of that name: does
 *					anybody wait?  Otherwise no step ends in
 *					KVM_PT_PAUSE
 *	KVM_PT_FLAGS			optional: the flags that are ever used, to
 *					leave out what the others need
 *	KVM_PT_PROVE(ok)		optional, for debugging: complains unless
 *					@ok.  Each hint that is used is checked
 *
 * all of them inline, so that no pointer to a function is ever called.  Nothing
 * here allocates, sleeps, or needs more than the headers below: locks, RCU and
 * yielding are the caller's.
 */
#ifndef __LINUX_KVM_PT_ITER_H
#define __LINUX_KVM_PT_ITER_H

#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/minmax.h>
#include <linux/types.h>

/* Entries that are read as one: a cache line of 64-bit entries. */
#define KVM_PT_LINE		8

/*
 * Entries that one step passes at most before it looks whether to pause.  More
 * than there are levels: the way down to where the last step ended counts as well.
 */
#ifndef KVM_PT_SKIP_MAX
#define KVM_PT_SKIP_MAX		64
#endif

/* How to walk. */
#define KVM_PT_TABLES		BIT(0)	/* report tables, before what is below */
#define KVM_PT_TABLES_AFTER	BIT(1)	/* report tables, after what is below */
#define KVM_PT_PAUSES		BIT(2)	/* report KVM_PT_PAUSE */
#define KVM_PT_HINTS		BIT(3)	/* step over hinted entries */
#define KVM_PT_LEARN		BIT(4)	/* hint what turns out to be empty */
#define KVM_PT_UNLOCKED		BIT(5)	/* without mmu_lock: hints may be late */

#ifndef KVM_PT_FLAGS
#define KVM_PT_FLAGS		GENMASK(5, 0)
#endif

/**
 * enum kvm_pt_event - what a step found
 * @KVM_PT_END: nothing more in the range
 * @KVM_PT_PAUSE: KVM_PT_SKIP_MAX entries were passed since the last event: time
 *		  to look whether somebody waits, or kvm_pt_pause() has.  The
 *		  position is that of an entry which has not been looked at
 * @KVM_PT_LEAF: a leaf
 * @KVM_PT_TABLE: a table entry; what it points to when the next step is made
 *		  is walked next, unless the level is the lowest one wanted
 * @KVM_PT_TABLE_AFTER: a table entry below which everything has been walked
 */
enum kvm_pt_event {
	KVM_PT_END,
	KVM_PT_PAUSE,
	KVM_PT_LEAF,
	KVM_PT_TABLE,
	KVM_PT_TABLE_AFTER,
};

/**
 * struct kvm_pt_iter - where a walk is
 * @ctx: of the format
 * @ptep: the current entry
 * @stop: end of the part of the current table that is in the range
 * @entry: value of the current entry as it was when it was reported
 * @pos: first page that the current entry maps
 * @next: the page that the walk has to go on with: not below @pos, and above it
 *	  only if the range starts in the middle of what the entry maps
 * @end: end of the range
 * @table: the tables on the way to the current entry
 * @flags: KVM_PT_*
 * @level: level of the current entry
 * @root_level: level of the table that the walk started with
 * @min_level: the walk does not descend below this one
 * @state: what the next step has to do with the current entry
 * @skipped: entries that this step has passed already
 * @empty: bit n is set while all entries of the current table of level n, from
 *	   its first one on, have been passed since mmu_lock was taken, and
 *	   there is no live leaf below any of them
 */
struct kvm_pt_iter {
	struct kvm_pt_ctx ctx;
	kvm_pt_entry_t *ptep;
	kvm_pt_entry_t *stop;
	kvm_pt_entry_t entry;
	u64 pos;
	u64 next;
	u64 end;
	kvm_pt_entry_t *table[KVM_PT_MAX_LEVELS];
	u8 flags;
	u8 level;
	u8 root_level;
	u8 min_level;
	u8 state;
	u8 skipped;
	u8 empty;
};

/* kvm_pt_iter.state */
enum {
	KVM_PT_LOOK,	/* look at it */
	KVM_PT_REPORTED,	/* go below it, or on if there is nothing */
	KVM_PT_LAST,	/* ditto, but nothing is below the last level */
	KVM_PT_DONE,	/* go on */
};

#define KVM_PT_LIVE	((kvm_pt_entry_t)1 << KVM_PT_LIVE_LG2)

#ifndef kvm_pt_peek
#define kvm_pt_peek	kvm_pt_read
#endif

#ifndef kvm_pt_pause
static __always_inline bool kvm_pt_pause(const struct kvm_pt_ctx *ctx)
{
	return true;
}
#endif

static __always_inline bool kvm_pt_is_live(kvm_pt_entry_t e)
{
	return e & KVM_PT_LIVE;
}

#ifdef KVM_PT_HINT_LG2

#define KVM_PT_HINT	((kvm_pt_entry_t)1 << KVM_PT_HINT_LG2)

/* The KVM_PT_LIVE bit of this is set if @e is live and not hinted. */
static __always_inline kvm_pt_entry_t kvm_pt_without_hint(kvm_pt_entry_t e)
{
	return e & ~(e >> (KVM_PT_HINT_LG2 - KVM_PT_LIVE_LG2));
}

/**
 * kvm_pt_is_hinted() - is this a table entry below which there is no live leaf?
 * @e: an entry of a level above 0
 *
 * What an architecture keeps in absent entries may look like the hint.
 */
static __always_inline bool kvm_pt_is_hinted(kvm_pt_entry_t e)
{
	return kvm_pt_is_live(e) && (e & KVM_PT_HINT);
}

/**
 * kvm_pt_clear_hint() - prepare for a live leaf below an entry
 * @ptep: an entry of a level above 0
 * @e: its value; on return the present one, which is not hinted, but which may
 *     be something else than the table that it was
 *
 * Context: mmu_lock is held, for read or write, and stays so until the leaf has
 * been installed.
 */
static inline void kvm_pt_clear_hint(kvm_pt_entry_t *ptep, kvm_pt_entry_t *e)
{
	while (kvm_pt_is_hinted(*e)) {
		if (kvm_pt_try_cmpxchg(ptep, e, *e & ~KVM_PT_HINT))
			*e &= ~KVM_PT_HINT;
	}
}

/* Nobody else writes to a table entry while mmu_lock is held for write. */
static inline void kvm_pt_set_hint(kvm_pt_entry_t *ptep, kvm_pt_entry_t *e)
{
	if (kvm_pt_try_cmpxchg(ptep, e, *e | KVM_PT_HINT))
		*e |= KVM_PT_HINT;
}

#else /* !KVM_PT_HINT_LG2 */

static __always_inline kvm_pt_entry_t kvm_pt_without_hint(kvm_pt_entry_t e)
{
	return e;
}

static __always_inline bool kvm_pt_is_hinted(kvm_pt_entry_t e)
{
	return false;
}

static inline void kvm_pt_set_hint(kvm_pt_entry_t *ptep, kvm_pt_entry_t *e)
{
}

#endif /* KVM_PT_HINT_LG2 */

/* Is there anything for a walk to see in the entry? */
static __always_inline bool kvm_pt_is_seen(kvm_pt_entry_t e, bool hints)
{
	return kvm_pt_is_live(hints ? kvm_pt_without_hint(e) : e);
}

static __always_inline kvm_pt_entry_t kvm_pt_look(kvm_pt_entry_t *ptep, bool hints)
{
	kvm_pt_entry_t e = kvm_pt_peek(ptep);

	return hints ? kvm_pt_without_hint(e) : e;
}

/* Is live if there is anything to see in a line. */
static __always_inline kvm_pt_entry_t kvm_pt_look_at_line(kvm_pt_entry_t *ptep, bool hints)
{
	BUILD_BUG_ON(KVM_PT_LINE != 8);

	return kvm_pt_look(ptep, hints) |
	       kvm_pt_look(ptep + 1, hints) |
	       kvm_pt_look(ptep + 2, hints) |
	       kvm_pt_look(ptep + 3, hints) |
	       kvm_pt_look(ptep + 4, hints) |
	       kvm_pt_look(ptep + 5, hints) |
	       kvm_pt_look(ptep + 6, hints) |
	       kvm_pt_look(ptep + 7, hints);
}

static __always_inline unsigned long kvm_pt_offset_in_line(const kvm_pt_entry_t *ptep)
{
	return (unsigned long)ptep % (KVM_PT_LINE * sizeof(*ptep));
}

/*
 * Passes lines in which there is nothing to be seen, as far as they end before
 * @stop.  In pairs, unless hints, which take registers, are to be told.
 */
static __always_inline kvm_pt_entry_t *
kvm_pt_skip_lines(kvm_pt_entry_t *ptep, kvm_pt_entry_t *stop, bool hints)
{
	kvm_pt_entry_t *last = stop - KVM_PT_LINE, first, second;

	for (; !hints && ptep <= last - KVM_PT_LINE; ptep += 2 * KVM_PT_LINE) {
		first = kvm_pt_look_at_line(ptep, false);
		/* One after the other: both at once would take too many registers. */
		OPTIMIZER_HIDE_VAR(first);
		second = kvm_pt_look_at_line(ptep + KVM_PT_LINE, false);
		if (kvm_pt_is_live(first | second))
			return kvm_pt_is_live(first) ? ptep : ptep + KVM_PT_LINE;
	}

	for (; ptep <= last; ptep += KVM_PT_LINE)
		if (kvm_pt_is_live(kvm_pt_look_at_line(ptep, hints)))
			break;

	return ptep;
}

/**
 * kvm_pt_skip() - pass entries that are absent
 * @ptep: the first entry
 * @stop: end of the entries, not read
 * @hints: pass hinted entries as well; level above 0 only
 * @e: value of the entry that is returned, if that is not @stop
 *
 * Return: the first other entry, @stop if there is none.
 */
static __always_inline kvm_pt_entry_t *
kvm_pt_skip(kvm_pt_entry_t *ptep, kvm_pt_entry_t *stop, bool hints, kvm_pt_entry_t *e)
{
	for (;;) {
		if (!kvm_pt_offset_in_line(ptep))
			ptep = kvm_pt_skip_lines(ptep, stop, hints);

		do {
			if (ptep == stop)
				return ptep;
			*e = kvm_pt_read(ptep);
			if (kvm_pt_is_seen(*e, hints))
				return ptep;
		} while (kvm_pt_offset_in_line(++ptep));
	}
}

/**
 * kvm_pt_pause_at() - where to look whether somebody waits
 * @ptep: the current entry
 * @stop: end of the entries that there are
 * @left: entries that may be passed before
 *
 * At the end of a line if possible, so that the next entries are read in lines.
 */
static __always_inline kvm_pt_entry_t *
kvm_pt_pause_at(kvm_pt_entry_t *ptep, kvm_pt_entry_t *stop, int left)
{
	kvm_pt_entry_t *line;

	if (stop - ptep <= left)
		return stop;

	stop = ptep + left;
	line = (void *)stop - kvm_pt_offset_in_line(stop);
	return line > ptep ? line : stop;
}

static __always_inline bool kvm_pt_has(const struct kvm_pt_iter *it, unsigned int flag)
{
	return KVM_PT_FLAGS & flag && it->flags & flag;
}

static __always_inline unsigned int kvm_pt_span_lg2(unsigned int level)
{
	return level * KVM_PT_INDEX_LG2;
}

static __always_inline kvm_pt_entry_t *kvm_pt_table_end(const struct kvm_pt_iter *it)
{
	unsigned int lg2 = it->level == it->root_level ?
			   kvm_pt_root_lg2(&it->ctx) : KVM_PT_INDEX_LG2;

	return it->table[it->level] + (1UL << lg2);
}

/*
 * Make the entry of the current level that maps @pos the current one, and return
 * its index.  Once for each table, so one copy of it will do.
 */
static noinline __maybe_unused unsigned int kvm_pt_locate(struct kvm_pt_iter *it, u64 pos)
{
	unsigned int index = kvm_pt_index(&it->ctx, pos, it->level);
	unsigned int lg2 = kvm_pt_span_lg2(it->level);
	u64 in_range;

	it->pos = pos >> lg2 << lg2;
	it->ptep = it->table[it->level] + index;

	in_range = ((it->end - 1 - it->pos) >> lg2) + 1;
	it->stop = kvm_pt_table_end(it);
	if (in_range < (u64)(it->stop - it->ptep))
		it->stop = it->ptep + in_range;

	return index;
}

/* The current level has got its table. */
static __always_inline void kvm_pt_enter(struct kvm_pt_iter *it)
{
	if (kvm_pt_locate(it, it->next))
		it->empty &= ~BIT(it->level);
	else
		it->empty |= BIT(it->level);
}

static __always_inline void kvm_pt_descend(struct kvm_pt_iter *it, kvm_pt_entry_t e)
{
	kvm_pt_entry_t *child = kvm_pt_child(&it->ctx, e, it->level);

	it->table[--it->level] = child;
	kvm_pt_enter(it);
}

/* @nr is not 0: an entry that is not passed may be one to go on in the middle of. */
static __always_inline void kvm_pt_advance(struct kvm_pt_iter *it, unsigned int nr)
{
	it->ptep += nr;
	it->pos += (u64)nr << kvm_pt_span_lg2(it->level);
	it->next = it->pos;
}

/* Leave the current entry, whose value is now @e, behind. */
static __always_inline void kvm_pt_pass(struct kvm_pt_iter *it, kvm_pt_entry_t e)
{
	if (kvm_pt_is_seen(e, it->level > 0))
		it->empty &= ~BIT(it->level);

	kvm_pt_advance(it, 1);
}

/* Has the whole of the current table been passed, and is it empty? */
static __always_inline bool kvm_pt_is_proven(const struct kvm_pt_iter *it)
{
	return it->empty & BIT(it->level) && it->ptep == kvm_pt_table_end(it);
}

/*
 * Return to the entry that points to the current table, whose end, or that of
 * the range, has been reached.
 */
static __always_inline kvm_pt_entry_t kvm_pt_ascend(struct kvm_pt_iter *it)
{
	bool empty = kvm_pt_is_proven(it);
	kvm_pt_entry_t e;

	it->level++;
	kvm_pt_locate(it, it->next - 1);

	e = kvm_pt_read(it->ptep);
	if (kvm_pt_has(it, KVM_PT_LEARN) && empty && kvm_pt_is_live(e) &&
	    !kvm_pt_is_leaf(e, it->level) && !kvm_pt_is_hinted(e))
		kvm_pt_set_hint(it->ptep, &e);

	return e;
}

/*
 * Nothing is left in the range, and as the current table is not known to be
 * empty neither are those that it is in.
 */
static __always_inline bool kvm_pt_at_end(const struct kvm_pt_iter *it)
{
	if (it->level == it->root_level)
		return true;

	return it->next >= it->end && !kvm_pt_has(it, KVM_PT_TABLES_AFTER) &&
	       !(kvm_pt_has(it, KVM_PT_LEARN) && kvm_pt_is_proven(it));
}

#if defined(KVM_PT_PROVE) && defined(KVM_PT_HINT_LG2)

/* For debugging only: it recurses, once for each level. */
static bool kvm_pt_has_leaf(const struct kvm_pt_ctx *ctx, kvm_pt_entry_t *table,
			    unsigned int level)
{
	kvm_pt_entry_t *ptep, e;

	for (ptep = table; ptep < table + (1UL << KVM_PT_INDEX_LG2); ptep++) {
		e = READ_ONCE(*ptep);
		if (!kvm_pt_is_live(e))
			continue;
		if (kvm_pt_is_leaf(e, level) ||
		    kvm_pt_has_leaf(ctx, kvm_pt_child(ctx, e, level), level - 1))
			return true;
	}

	return false;
}

/* The next @nr entries are about to be stepped over. */
static inline void kvm_pt_prove(struct kvm_pt_iter *it, unsigned int nr)
{
	kvm_pt_entry_t *ptep, e;

	for (ptep = it->ptep; ptep < it->ptep + nr; ptep++) {
		e = READ_ONCE(*ptep);
		if (!kvm_pt_is_hinted(e))
			continue;
		if (!kvm_pt_has_leaf(&it->ctx, kvm_pt_child(&it->ctx, e, it->level),
				     it->level - 1))
			continue;
		/* A fault that clears it first may have been at work. */
		KVM_PT_PROVE(READ_ONCE(*ptep) != e);
	}
}

#else
static __always_inline void kvm_pt_prove(struct kvm_pt_iter *it, unsigned int nr)
{
}
#endif

/**
 * kvm_pt_restart() - go on from the root
 * @it: the walk
 *
 * For whoever has dropped what protects the tables, i.e. mmu_lock or RCU: it
 * goes on with @it->next and no longer knows what it had found to be empty.
 */
static noinline __maybe_unused void kvm_pt_restart(struct kvm_pt_iter *it)
{
	unsigned int level = it->root_level, index;
	kvm_pt_entry_t e;

	it->empty = 0;
	it->skipped = 0;
	it->state = KVM_PT_LOOK;

	/* Straight down, where that is what the first step would do. */
	for (;; level--) {
		index = kvm_pt_index(&it->ctx, it->next, level);
		it->empty |= !index << level;

		if (level == it->min_level || kvm_pt_has(it, KVM_PT_TABLES))
			break;

		e = kvm_pt_read(it->table[level] + index);
		if (!kvm_pt_is_seen(e, kvm_pt_has(it, KVM_PT_HINTS)) ||
		    kvm_pt_is_leaf(e, level))
			break;

		it->table[level - 1] = kvm_pt_child(&it->ctx, e, level);
	}

	it->level = level;
	kvm_pt_locate(it, it->next);
}

/**
 * kvm_pt_start() - begin a walk
 * @it: the walk; @it->ctx has been set
 * @table: the root, or any other table
 * @level: level of @table
 * @min_level: lowest level to descend to
 * @start: first page, below @end
 * @end: end of the range, not beyond what the root can map
 * @flags: KVM_PT_*; KVM_PT_LEARN only with mmu_lock held for write
 */
static inline void kvm_pt_start(struct kvm_pt_iter *it, kvm_pt_entry_t *table,
				unsigned int level, unsigned int min_level,
				u64 start, u64 end, unsigned int flags)
{
	it->table[level] = table;
	it->root_level = level;
	it->min_level = min_level;
	it->next = start;
	it->end = end;
	it->flags = flags;
	kvm_pt_restart(it);
}

/* The current entry is a leaf of the last level, and the next one is none. */
static noinline __maybe_unused bool kvm_pt_next_near_sparse(struct kvm_pt_iter *it)
{
	kvm_pt_entry_t *ptep = it->ptep, *stop = it->stop, *line, e;
	unsigned long nr;

	if (stop - ptep > KVM_PT_SKIP_MAX + 1)
		stop = ptep + KVM_PT_SKIP_MAX + 1;

	/* Maybe all of the line is empty by now.  Tables that are pages begin with one. */
	line = (void *)ptep - kvm_pt_offset_in_line(ptep);
	ptep++;
	if ((KVM_PT_INDEX_LG2 >= 9 || line >= it->table[0]) && line + KVM_PT_LINE <= stop &&
	    !kvm_pt_is_live(kvm_pt_look_at_line(line, false)))
		ptep = line + KVM_PT_LINE;

	ptep = kvm_pt_skip(ptep, stop, false, &e);
	nr = ptep - it->ptep;
	it->ptep = ptep;
	it->pos += nr;
	it->next = it->pos;

	if (ptep != stop) {
		it->entry = e;
		return true;
	}

	it->state = KVM_PT_LOOK;
	it->skipped = nr - 1;
	return false;
}

/**
 * kvm_pt_next_near() - make a short step
 * @it: the walk
 *
 * A shorter way to what kvm_pt_next() would find, for the case that matters most:
 * from leaf to leaf, within a table of the last level.
 *
 * Return: true if that was a leaf, false if kvm_pt_next() has to be called.
 */
static __always_inline bool kvm_pt_next_near(struct kvm_pt_iter *it)
{
	kvm_pt_entry_t *ptep = it->ptep, e;

	if (it->state != KVM_PT_LAST)
		return false;

	if (kvm_pt_is_live(kvm_pt_read(ptep)))
		it->empty &= ~BIT(0);

	if (++ptep != it->stop) {
		e = kvm_pt_read(ptep);
		if (kvm_pt_is_live(e)) {
			it->ptep = ptep;
			it->pos++;
			it->next = it->pos;
			it->entry = e;
			return true;
		}
	}

	return kvm_pt_next_near_sparse(it);
}

/**
 * kvm_pt_next() - make a step
 * @it: the walk, after kvm_pt_start() or kvm_pt_restart()
 *
 * The caller may change the entry that was reported last, and tables below it.
 *
 * Context: the tables must not go away: mmu_lock is held, or an RCU read-side
 * critical section protects them, without a break since the walk was started or
 * restarted.
 *
 * Return: what there is at @it->ptep, whose value was @it->entry.
 */
static __always_inline enum kvm_pt_event kvm_pt_next(struct kvm_pt_iter *it)
{
	bool pauses = kvm_pt_has(it, KVM_PT_PAUSES), hints;
	kvm_pt_entry_t *ptep, *from, *stop, e;
	int left = KVM_PT_SKIP_MAX - it->skipped;

	it->skipped = 0;
	if (it->state != KVM_PT_LOOK) {
		/* Not what it was: look what has become of it. */
		e = kvm_pt_read(it->ptep);
		if (it->state == KVM_PT_REPORTED && it->level > it->min_level &&
		    kvm_pt_is_seen(e, kvm_pt_has(it, KVM_PT_HINTS)) &&
		    !kvm_pt_is_leaf(e, it->level))
			kvm_pt_descend(it, e);
		else
			kvm_pt_pass(it, e);
		it->state = KVM_PT_LOOK;
	}

	for (;;) {
		hints = it->level > 0 && kvm_pt_has(it, KVM_PT_HINTS);
		ptep = it->ptep;
		for (;;) {
			from = ptep;
			stop = it->stop;
			if (pauses)
				stop = kvm_pt_pause_at(from, stop, left);

			if (hints)
				ptep = kvm_pt_skip(from, stop, true, &e);
			else
				ptep = kvm_pt_skip(from, stop, false, &e);

			if (ptep != stop || stop == it->stop || kvm_pt_pause(&it->ctx))
				break;
			left = KVM_PT_SKIP_MAX;
		}
		left -= ptep - from;

		if (hints && !kvm_pt_has(it, KVM_PT_UNLOCKED))
			kvm_pt_prove(it, ptep - it->ptep);

		if (ptep != it->ptep)
			kvm_pt_advance(it, ptep - it->ptep);

		if (ptep == it->stop) {
			if (kvm_pt_at_end(it))
				return KVM_PT_END;

			e = kvm_pt_ascend(it);
			if (kvm_pt_has(it, KVM_PT_TABLES_AFTER)) {
				it->entry = e;
				it->state = KVM_PT_DONE;
				return KVM_PT_TABLE_AFTER;
			}
			kvm_pt_pass(it, e);
			continue;
		}

		if (ptep == stop)
			return KVM_PT_PAUSE;

		if (kvm_pt_is_leaf(e, it->level)) {
			it->entry = e;
			it->state = it->level ? KVM_PT_REPORTED : KVM_PT_LAST;
			return KVM_PT_LEAF;
		}

		if (kvm_pt_has(it, KVM_PT_TABLES)) {
			it->entry = e;
			it->state = KVM_PT_REPORTED;
			return KVM_PT_TABLE;
		}

		left -= left > 0;
		if (it->level > it->min_level)
			kvm_pt_descend(it, e);
		else
			kvm_pt_pass(it, e);
	}
}

#endif /* __LINUX_KVM_PT_ITER_H */
