/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A page table in no hardware's format, to test include/linux/kvm_pt_iter.h
 *
 * Its shape is chosen when a test runs: the number of levels, small tables, so
 * that every index can be tried, and where the two bits are.  What has no live
 * bit may hold anything, as it does with real formats: here mostly ones.
 *
 * Beside the table there is a flat array of what is mapped.  Both are changed
 * by the same functions, and kvm_pt_mock_check() compares them in full.
 */
#ifndef __KVM_PT_MOCK_H
#define __KVM_PT_MOCK_H

#include <linux/array_size.h>
#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/minmax.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/types.h>

#define MOCK_PAGES_MAX	BIT(13)
#define MOCK_TABLES_MAX	2048

typedef u64 kvm_pt_entry_t;

struct kvm_pt_mock_shape {
	u8 levels;
	u8 index_lg2;
	u8 root_lg2;
	u8 live_lg2;
	u8 hint_lg2;
	u8 skip_max;
};

/* Set for as long as a table of that shape exists; tests run one at a time. */
static struct kvm_pt_mock_shape mock_shape;
/* Entries that the walk has read, since it last looked whether anybody waits. */
static unsigned long mock_reads;
/* The most of them that there were. */
static unsigned long mock_reads_most;
/* Does anybody wait? */
static bool mock_waits = true;
/* Hints that were found to be wrong when they were used. */
static unsigned int mock_wrong_hints;

/* A page of the flat array: @frame is 0 if nothing is mapped. */
struct kvm_pt_mock_page {
	u32 frame;
	u8 level;
	bool writable;
	bool young;
	/* The mock's clock when it was mapped. */
	u32 born;
};

struct kvm_pt_mock {
	kvm_pt_entry_t *table[MOCK_TABLES_MAX];
	unsigned int nr_tables;
	/* Tables that were removed while somebody may be in them. */
	kvm_pt_entry_t *removed[MOCK_TABLES_MAX];
	unsigned int nr_removed;
	bool readers;
	u64 nr_pages;
	u32 clock;
	struct kvm_pt_mock_page page[MOCK_PAGES_MAX];
};

struct kvm_pt_ctx {
	struct kvm_pt_mock *mock;
};

#define KVM_PT_MAX_LEVELS	4
#define KVM_PT_INDEX_LG2	(mock_shape.index_lg2)
#define KVM_PT_LIVE_LG2		(mock_shape.live_lg2)
#ifndef MOCK_WITHOUT_HINT
#define KVM_PT_HINT_LG2		(mock_shape.hint_lg2)
#endif
#define KVM_PT_SKIP_MAX		((unsigned int)mock_shape.skip_max)
#define KVM_PT_PROVE(ok)	(mock_wrong_hints += !(ok))

#define MOCK_LIVE	BIT_ULL(mock_shape.live_lg2)
#define MOCK_LEAF	BIT_ULL(2)
#define MOCK_WRITABLE	BIT_ULL(3)
#define MOCK_YOUNG	BIT_ULL(4)
#define MOCK_NR_SHIFT	16
#define MOCK_NR(e)	((u32)((e) >> MOCK_NR_SHIFT & GENMASK(31, 0)))
/* What is left of a leaf, and what a device's page would be. */
#define MOCK_ABSENT	BIT_ULL(63)
#define MOCK_SPECIAL	(~MOCK_LIVE)

static inline kvm_pt_entry_t kvm_pt_read(kvm_pt_entry_t *ptep)
{
	mock_reads++;
	return READ_ONCE(*ptep);
}

static inline bool kvm_pt_is_leaf(kvm_pt_entry_t e, unsigned int level)
{
	return !level || e & MOCK_LEAF;
}

static inline kvm_pt_entry_t *kvm_pt_child(const struct kvm_pt_ctx *ctx,
					   kvm_pt_entry_t e, unsigned int level)
{
	return ctx->mock->table[MOCK_NR(e)];
}

static inline unsigned int kvm_pt_root_lg2(const struct kvm_pt_ctx *ctx)
{
	return mock_shape.root_lg2;
}

static inline unsigned int kvm_pt_index(const struct kvm_pt_ctx *ctx, u64 pos,
					unsigned int level)
{
	unsigned int lg2 = level == mock_shape.levels - 1 ? mock_shape.root_lg2 :
							    mock_shape.index_lg2;

	return (pos >> (level * mock_shape.index_lg2)) & (BIT(lg2) - 1);
}

static inline bool kvm_pt_try_cmpxchg(kvm_pt_entry_t *ptep, kvm_pt_entry_t *old,
				      kvm_pt_entry_t new)
{
	if (*ptep != *old) {
		*old = *ptep;
		return false;
	}

	*ptep = new;
	return true;
}

#define kvm_pt_pause kvm_pt_pause
static inline bool kvm_pt_pause(const struct kvm_pt_ctx *ctx)
{
	mock_reads_most = max(mock_reads_most, mock_reads);
	mock_reads = 0;
	return mock_waits;
}

#include <linux/kvm_pt_iter.h>

static inline u64 mock_span(unsigned int level)
{
	return 1ULL << kvm_pt_span_lg2(level);
}

static kvm_pt_entry_t mock_new_table(struct kvm_pt_mock *mock, unsigned int lg2)
{
	kvm_pt_entry_t *table;
	unsigned int nr, i;

	/* Number 0 is the root, so no other table is found below that. */
	for (nr = 0; mock->table[nr]; nr++)
		;
	if (nr == MOCK_TABLES_MAX - 1)
		return 0;

	table = kmalloc(sizeof(*table) << lg2, GFP_KERNEL);
	if (!table)
		return 0;

	for (i = 0; i < 1U << lg2; i++)
		table[i] = MOCK_ABSENT;

	mock->table[nr] = table;
	mock->nr_tables++;
	return MOCK_LIVE | (u64)nr << MOCK_NR_SHIFT;
}

static struct kvm_pt_mock *mock_create(const struct kvm_pt_mock_shape *shape)
{
	struct kvm_pt_mock *mock = kvzalloc(sizeof(*mock), GFP_KERNEL);

	if (!mock)
		return NULL;

	mock_shape = *shape;
	mock_wrong_hints = 0;
	mock->nr_pages = mock_span(shape->levels - 1) << shape->root_lg2;
	if (mock->nr_pages > MOCK_PAGES_MAX || !mock_new_table(mock, shape->root_lg2)) {
		kvfree(mock);
		return NULL;
	}

	return mock;
}

/* As RCU does it: who is in the table stays there, but finds nothing. */
static void mock_free_table(struct kvm_pt_mock *mock, kvm_pt_entry_t e)
{
	kvm_pt_entry_t *table = mock->table[MOCK_NR(e)];
	unsigned int i;

	mock->table[MOCK_NR(e)] = NULL;
	mock->nr_tables--;

	if (!mock->readers || mock->nr_removed == MOCK_TABLES_MAX) {
		kfree(table);
		return;
	}

	for (i = 0; i < BIT(KVM_PT_INDEX_LG2); i++)
		table[i] = MOCK_SPECIAL;
	mock->removed[mock->nr_removed++] = table;
}

static void mock_readers(struct kvm_pt_mock *mock, bool readers)
{
	mock->readers = readers;
	while (!readers && mock->nr_removed)
		kfree(mock->removed[--mock->nr_removed]);
}

static void mock_free_below(struct kvm_pt_mock *mock, kvm_pt_entry_t e,
			    unsigned int level)
{
	unsigned int i;
	kvm_pt_entry_t *table = mock->table[MOCK_NR(e)];

	for (i = 0; level > 1 && i < BIT(KVM_PT_INDEX_LG2); i++)
		if (kvm_pt_is_live(table[i]) && !kvm_pt_is_leaf(table[i], level - 1))
			mock_free_below(mock, table[i], level - 1);

	mock_free_table(mock, e);
}

static void mock_destroy(struct kvm_pt_mock *mock)
{
	unsigned int nr;

	for (nr = 0; nr < MOCK_TABLES_MAX; nr++)
		kfree(mock->table[nr]);
	kvfree(mock);
}

static void mock_note_leaf(struct kvm_pt_mock *mock, u64 pos, unsigned int level,
			   kvm_pt_entry_t e)
{
	u64 i;

	pos &= ~(mock_span(level) - 1);
	for (i = 0; i < mock_span(level); i++)
		mock->page[pos + i] = (struct kvm_pt_mock_page) {
			.frame = kvm_pt_is_live(e) ? MOCK_NR(e) + i : 0,
			.level = level,
			.writable = e & MOCK_WRITABLE,
			.young = e & MOCK_YOUNG,
			.born = mock->clock,
		};
}

/* Any absent value, since a walker must not care. */
static kvm_pt_entry_t mock_absent(u64 pos)
{
	return pos & 1 ? MOCK_ABSENT : 0;
}

/* In the last level the bit of the hint may mean anything. */
static kvm_pt_entry_t mock_leaf(u64 pos, unsigned int level, bool writable)
{
	bool as_hint = !level && pos & 1;

	pos &= ~(mock_span(level) - 1);

	return MOCK_LIVE | MOCK_LEAF | MOCK_YOUNG | (writable ? MOCK_WRITABLE : 0) |
	       (as_hint ? BIT_ULL(mock_shape.hint_lg2) : 0) | (pos + 1) << MOCK_NR_SHIFT;
}

/* Called for a table entry on the way to a new leaf; tests break it. */
static void (*mock_clear_hint)(kvm_pt_entry_t *ptep, kvm_pt_entry_t *e);

static void mock_clear_hint_before(kvm_pt_entry_t *ptep, kvm_pt_entry_t *e)
{
#ifdef KVM_PT_HINT_LG2
	kvm_pt_clear_hint(ptep, e);
#endif
}

static bool mock_split(struct kvm_pt_mock *mock, u64 pos, kvm_pt_entry_t *ptep,
		       unsigned int level)
{
	kvm_pt_entry_t table = mock_new_table(mock, KVM_PT_INDEX_LG2), leaf, *child;
	u64 i, first = pos & ~(mock_span(level) - 1);

	if (!table)
		return false;

	child = mock->table[MOCK_NR(table)];
	for (i = 0; i < BIT(KVM_PT_INDEX_LG2); i++) {
		leaf = *ptep + ((i * mock_span(level - 1)) << MOCK_NR_SHIFT);
		child[i] = leaf;
		mock_note_leaf(mock, first + i * mock_span(level - 1), level - 1, leaf);
	}

	*ptep = table;
	return true;
}

/* A guest touches @pos and gets a leaf of @goal's level, if that is possible. */
static void mock_fault(struct kvm_pt_mock *mock, u64 pos, unsigned int goal, bool writable)
{
	const struct kvm_pt_ctx ctx = { mock };
	kvm_pt_entry_t *table = mock->table[0], *ptep, e, old;
	unsigned int level = mock_shape.levels - 1;

	for (;; level--) {
		ptep = table + kvm_pt_index(&ctx, pos, level);
		e = READ_ONCE(*ptep);

		if (level == goal) {
			old = e;
			*ptep = mock_leaf(pos, level, writable);
			/* What a huge leaf replaces has been unmapped before. */
			if (kvm_pt_is_live(old) && !kvm_pt_is_leaf(old, level))
				mock_free_below(mock, old, level);
			mock_note_leaf(mock, pos, level, *ptep);
			return;
		}

		if (!kvm_pt_is_live(e)) {
			e = mock_new_table(mock, KVM_PT_INDEX_LG2);
			if (!e)
				return;
			*ptep = e;
		} else if (kvm_pt_is_leaf(e, level)) {
			if (!mock_split(mock, pos, ptep, level))
				return;
			e = *ptep;
		} else {
			mock_clear_hint(ptep, &e);
		}

		table = kvm_pt_child(&ctx, e, level);
	}
}

/* An entry that is not live may change without further ado. */
static void mock_special(struct kvm_pt_mock *mock, u64 pos)
{
	const struct kvm_pt_ctx ctx = { mock };
	kvm_pt_entry_t *table = mock->table[0], *ptep;
	int level;

	for (level = mock_shape.levels - 1; level >= 0; level--) {
		ptep = table + kvm_pt_index(&ctx, pos, level);
		if (!kvm_pt_is_live(*ptep)) {
			*ptep = MOCK_SPECIAL;
			return;
		}
		if (kvm_pt_is_leaf(*ptep, level))
			return;
		table = kvm_pt_child(&ctx, *ptep, level);
	}
}

static void mock_start(struct kvm_pt_mock *mock, struct kvm_pt_iter *it, u64 start,
		       u64 end, unsigned int min_level, unsigned int flags)
{
	it->ctx.mock = mock;
	kvm_pt_start(it, mock->table[0], mock_shape.levels - 1, min_level, start,
		     end, flags);
}

/* What a walk's body does to a leaf. */
static void mock_zap_leaf(struct kvm_pt_mock *mock, const struct kvm_pt_iter *it)
{
	*it->ptep = mock_absent(it->pos);
	mock_note_leaf(mock, it->pos, it->level, *it->ptep);
}

static void mock_clear_bit(struct kvm_pt_mock *mock, const struct kvm_pt_iter *it,
			   kvm_pt_entry_t bit)
{
	u32 clock = mock->clock;

	*it->ptep &= ~bit;
	mock->clock = mock->page[it->pos].born;
	mock_note_leaf(mock, it->pos, it->level, *it->ptep);
	mock->clock = clock;
}

/* Returns the number of leaves below a table; complains about false hints. */
static const char *mock_check_table(struct kvm_pt_mock *mock, kvm_pt_entry_t *table,
				    u64 pos, unsigned int level, unsigned int lg2,
				    u64 *leaves)
{
	const struct kvm_pt_ctx ctx = { mock };
	struct kvm_pt_mock_page *page;
	const char *wrong;
	unsigned int i;
	u64 n, below;

	for (i = 0; i < 1U << lg2; i++, pos += mock_span(level)) {
		if (kvm_pt_is_live(table[i]) && !kvm_pt_is_leaf(table[i], level)) {
			below = 0;
			wrong = mock_check_table(mock, kvm_pt_child(&ctx, table[i], level),
						 pos, level - 1, KVM_PT_INDEX_LG2, &below);
			if (wrong)
				return wrong;
			if (below && kvm_pt_is_hinted(table[i]))
				return "a hint, but there is a leaf below";
			*leaves += below;
			continue;
		}

		*leaves += kvm_pt_is_live(table[i]);
		for (n = 0; n < mock_span(level); n++) {
			page = &mock->page[pos + n];
			if (!kvm_pt_is_live(table[i])) {
				if (page->frame)
					return "a page is not mapped";
				continue;
			}
			if (page->frame != MOCK_NR(table[i]) + n ||
			    page->level != level ||
			    page->writable != !!(table[i] & MOCK_WRITABLE) ||
			    page->young != !!(table[i] & MOCK_YOUNG))
				return "a page is mapped wrongly";
		}
	}

	return NULL;
}

/**
 * kvm_pt_mock_check() - compare table and array, and look for false hints
 * @mock: the table
 *
 * Return: what is wrong, NULL if nothing is.
 */
static const char *kvm_pt_mock_check(struct kvm_pt_mock *mock)
{
	u64 leaves = 0;

	if (mock_wrong_hints)
		return "a hint was used that was wrong";

	return mock_check_table(mock, mock->table[0], 0, mock_shape.levels - 1,
				mock_shape.root_lg2, &leaves);
}

#endif /* __KVM_PT_MOCK_H */
