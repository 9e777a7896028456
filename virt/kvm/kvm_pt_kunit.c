// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of include/linux/kvm_pt_iter.h, on a mock page table
 *
 * They also run outside the kernel: see tools/testing/kvm_pt/.
 */
#include <kunit/test.h>

#include "kvm_pt_mock_ops.h"

/* The bits of x86, with tables that are small enough to try everything. */
static const struct kvm_pt_mock_shape shape = {
	.levels = 3, .index_lg2 = 4, .root_lg2 = 4,
	.live_lg2 = 11, .hint_lg2 = 56, .skip_max = 64,
};

#define TABLE_PAGES	16
#define UPPER_PAGES	256

static struct kvm_pt_mock *create(struct kunit *test)
{
	struct kvm_pt_mock *mock = mock_create(&shape);

	KUNIT_ASSERT_NOT_NULL(test, mock);
	mock_clear_hint = mock_clear_hint_before;
	return mock;
}

static void check(struct kunit *test, struct kvm_pt_mock *mock)
{
	KUNIT_EXPECT_STREQ(test, kvm_pt_mock_check(mock) ?: "good", "good");
}

static void destroy(struct kunit *test, struct kvm_pt_mock *mock)
{
	check(test, mock);
	mock_destroy(mock);
}

static void map(struct kvm_pt_mock *mock, u64 start, u64 end, u64 step)
{
	u64 pos;

	for (pos = start; pos < end; pos += step)
		mock_fault(mock, pos, 0, true);
}

/* Returns the number of leaves that were unmapped. */
static unsigned int zap(struct kvm_pt_mock *mock, u64 start, u64 end)
{
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	unsigned int nr = 0;

	mock_reads = 0;
	mock_start(mock, &it, start, end, 0,
		   KVM_PT_HINTS | KVM_PT_LEARN | KVM_PT_PAUSES);
	while ((event = kvm_pt_next(&it)) != KVM_PT_END) {
		if (event == KVM_PT_LEAF) {
			mock_zap_leaf(mock, &it);
			nr++;
		}
	}

	return nr;
}

/* Zap with the lock dropped at @pos and a fault at @fault meanwhile. */
static void zap_and_yield(struct kvm_pt_mock *mock, u64 start, u64 end, u64 pos, u64 fault)
{
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	bool yielded = false;

	mock_start(mock, &it, start, end, 0,
		   KVM_PT_HINTS | KVM_PT_LEARN | KVM_PT_PAUSES);
	while ((event = kvm_pt_next(&it)) != KVM_PT_END) {
		if (!yielded && it.pos >= pos) {
			mock_fault(mock, fault, 0, true);
			kvm_pt_restart(&it);
			yielded = true;
		} else if (event == KVM_PT_LEAF) {
			mock_zap_leaf(mock, &it);
		}
	}
}

static kvm_pt_entry_t entry(struct kvm_pt_mock *mock, u64 pos, unsigned int level)
{
	const struct kvm_pt_ctx ctx = { mock };
	kvm_pt_entry_t *table = mock->table[0];
	unsigned int i;

	for (i = shape.levels - 1; i > level; i--)
		table = kvm_pt_child(&ctx, table[kvm_pt_index(&ctx, pos, i)], i);

	return table[kvm_pt_index(&ctx, pos, level)];
}

static bool hinted(struct kvm_pt_mock *mock, u64 pos, unsigned int level)
{
	return kvm_pt_is_hinted(entry(mock, pos, level));
}

static unsigned int count(struct kvm_pt_mock *mock, u64 start, u64 end,
			  unsigned int min_level, unsigned int flags,
			  enum kvm_pt_event what)
{
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	unsigned int nr = 0;

	mock_start(mock, &it, start, end, min_level, flags);
	while ((event = kvm_pt_next(&it)) != KVM_PT_END)
		nr += event == what;

	return nr;
}

static void lists_nothing(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	KUNIT_EXPECT_EQ(test, count(mock, 0, mock->nr_pages, 0, 0, KVM_PT_LEAF), 0);
	KUNIT_EXPECT_EQ(test, count(mock, 7, 8, 0, KVM_PT_LEARN, KVM_PT_LEAF), 0);
	destroy(test, mock);
}

/* Every range around the edges of tables, and every distance of leaves. */
static void lists_every_leaf(struct kunit *test)
{
	u64 first = UPPER_PAGES - 2 * TABLE_PAGES, last = UPPER_PAGES + 2 * TABLE_PAGES;
	u64 start, end, step, pos;
	unsigned int want;

	for (step = 1; step < 40; step = step * 2 + 1) {
		struct kvm_pt_mock *mock = create(test);

		map(mock, first, last, step);
		for (start = first; start < last; start++) {
			for (end = start + 1; end <= last; end++) {
				for (want = 0, pos = start; pos < end; pos++)
					want += !!mock->page[pos].frame;
				KUNIT_ASSERT_EQ(test, want,
						count(mock, start, end, 0, KVM_PT_HINTS,
						      KVM_PT_LEAF));
			}
		}
		destroy(test, mock);
	}
}

static void lists_huge_leaves(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	mock_fault(mock, 0, 2, true);
	mock_fault(mock, UPPER_PAGES, 1, true);
	mock_fault(mock, UPPER_PAGES + TABLE_PAGES, 0, true);

	/* A leaf belongs to a range that it reaches into. */
	KUNIT_EXPECT_EQ(test, count(mock, 5, 6, 0, 0, KVM_PT_LEAF), 1);
	KUNIT_EXPECT_EQ(test, count(mock, 5, UPPER_PAGES + 1, 0, 0, KVM_PT_LEAF), 2);
	KUNIT_EXPECT_EQ(test, count(mock, 0, mock->nr_pages, 0, 0, KVM_PT_LEAF), 3);
	KUNIT_EXPECT_EQ(test, count(mock, 0, mock->nr_pages, 1, 0, KVM_PT_LEAF), 2);
	KUNIT_EXPECT_EQ(test, count(mock, 0, mock->nr_pages, 2, 0, KVM_PT_LEAF), 1);
	destroy(test, mock);
}

static void lists_tables(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	map(mock, 0, UPPER_PAGES, TABLE_PAGES);
	mock_fault(mock, UPPER_PAGES, 0, true);

	KUNIT_EXPECT_EQ(test, count(mock, 0, mock->nr_pages, 0, KVM_PT_TABLES,
				    KVM_PT_TABLE), 19);
	KUNIT_EXPECT_EQ(test, count(mock, 0, mock->nr_pages, 0, KVM_PT_TABLES_AFTER,
				    KVM_PT_TABLE_AFTER), 19);
	KUNIT_EXPECT_EQ(test, count(mock, 0, mock->nr_pages, 2, KVM_PT_TABLES,
				    KVM_PT_TABLE), 2);
	KUNIT_EXPECT_EQ(test, count(mock, 20, 21, 0, KVM_PT_TABLES, KVM_PT_TABLE), 2);
	destroy(test, mock);
}

static void reads_a_line_at_a_time(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	/* Each line as one, and those with a leaf twice more: every other one. */
	map(mock, 0, UPPER_PAGES, TABLE_PAGES);
	mock_reads = 0;
	count(mock, 0, UPPER_PAGES, 0, 0, KVM_PT_LEAF);
	KUNIT_EXPECT_LE(test, mock_reads, 5 * UPPER_PAGES / 2);
	destroy(test, mock);
}

static void pauses(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	u64 last = 0;

	map(mock, 0, mock->nr_pages, TABLE_PAGES);
	zap(mock, 0, mock->nr_pages);

	/* Tables are there, leaves are not. */
	mock_reads = 0;
	mock_start(mock, &it, 0, mock->nr_pages, 0, KVM_PT_PAUSES);
	while ((event = kvm_pt_next(&it)) != KVM_PT_END) {
		KUNIT_EXPECT_EQ(test, event, KVM_PT_PAUSE);
		KUNIT_EXPECT_LE(test, mock_reads, mock_reads_max());
		KUNIT_EXPECT_GT(test, it.next, last);
		KUNIT_EXPECT_LE(test, it.next - last, shape.skip_max);
		last = it.next;
		mock_reads = 0;
	}
	KUNIT_EXPECT_GE(test, last, mock->nr_pages - shape.skip_max);
	destroy(test, mock);
}

/* The same walk, but nobody waits. */
static void pauses_for_somebody(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	map(mock, 0, mock->nr_pages, TABLE_PAGES);
	zap(mock, 0, mock->nr_pages);

	mock_waits = false;
	mock_reads = 0;
	mock_reads_most = 0;
	KUNIT_EXPECT_EQ(test, 0, count(mock, 0, mock->nr_pages, 0, KVM_PT_PAUSES,
				       KVM_PT_PAUSE));
	KUNIT_EXPECT_GT(test, mock_reads_most, 0);
	KUNIT_EXPECT_LE(test, max(mock_reads, mock_reads_most), mock_reads_max());
	mock_waits = true;
	destroy(test, mock);
}

/* What a short step has passed counts. */
static void pauses_behind_a_leaf(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);
	struct kvm_pt_iter it;

	map(mock, 0, mock->nr_pages, TABLE_PAGES);
	zap(mock, 0, mock->nr_pages);
	map(mock, 0, 1, 1);

	mock_start(mock, &it, 0, mock->nr_pages, 0, KVM_PT_PAUSES);
	KUNIT_ASSERT_EQ(test, kvm_pt_next(&it), KVM_PT_LEAF);
	KUNIT_ASSERT_FALSE(test, kvm_pt_next_near(&it));
	KUNIT_ASSERT_EQ(test, kvm_pt_next(&it), KVM_PT_PAUSE);
	KUNIT_EXPECT_LE(test, it.next, shape.skip_max + 1);
	destroy(test, mock);
}

static void learns_a_table(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	map(mock, 0, 3 * TABLE_PAGES, 1);
	KUNIT_EXPECT_EQ(test, zap(mock, TABLE_PAGES, 2 * TABLE_PAGES), TABLE_PAGES);

	KUNIT_EXPECT_FALSE(test, hinted(mock, 0, 1));
	KUNIT_EXPECT_TRUE(test, hinted(mock, TABLE_PAGES, 1));
	KUNIT_EXPECT_FALSE(test, hinted(mock, 2 * TABLE_PAGES, 1));
	KUNIT_EXPECT_FALSE(test, hinted(mock, 0, 2));
	destroy(test, mock);
}

static void learns_tables_of_tables(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	map(mock, 0, 2 * UPPER_PAGES, 5);
	zap(mock, 0, UPPER_PAGES);
	KUNIT_EXPECT_TRUE(test, hinted(mock, 0, 2));
	KUNIT_EXPECT_TRUE(test, hinted(mock, UPPER_PAGES - 1, 1));
	KUNIT_EXPECT_FALSE(test, hinted(mock, UPPER_PAGES, 2));

	KUNIT_EXPECT_EQ(test, zap(mock, 0, UPPER_PAGES), 0);
	KUNIT_EXPECT_LE(test, mock_reads, 4);
	destroy(test, mock);
}

/* What was emptied in pieces is found out by the first walk over all of it. */
static void learns_later(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);
	u64 pos;

	map(mock, 0, UPPER_PAGES, 1);
	for (pos = 0; pos < UPPER_PAGES; pos++)
		KUNIT_EXPECT_EQ(test, zap(mock, pos, pos + 1), 1);
	KUNIT_EXPECT_FALSE(test, hinted(mock, 0, 1));

	zap(mock, 0, UPPER_PAGES);
	KUNIT_EXPECT_TRUE(test, hinted(mock, 0, 2));
	destroy(test, mock);
}

/* Of all ranges, those that hold the whole table. */
static void learns_from_whole_tables_only(struct kunit *test)
{
	u64 start, end;

	for (start = 0; start < 2 * TABLE_PAGES; start++) {
		for (end = start + 1; end <= 3 * TABLE_PAGES; end++) {
			struct kvm_pt_mock *mock = create(test);

			mock_fault(mock, TABLE_PAGES + 3, 0, true);
			zap(mock, start, end);
			KUNIT_ASSERT_EQ(test, hinted(mock, TABLE_PAGES, 1),
					start <= TABLE_PAGES && end >= 2 * TABLE_PAGES);
			destroy(test, mock);
		}
	}
}

/* A walk may also leave a leaf alone. */
static void learns_not_what_is_spared(struct kunit *test)
{
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	u64 spared;

	for (spared = 0; spared < TABLE_PAGES; spared++) {
		struct kvm_pt_mock *mock = create(test);

		map(mock, 0, TABLE_PAGES, 1);
		mock_start(mock, &it, 0, UPPER_PAGES, 0, KVM_PT_HINTS | KVM_PT_LEARN);
		for (;;) {
			event = kvm_pt_next_near(&it) ? KVM_PT_LEAF : kvm_pt_next(&it);
			if (event == KVM_PT_END)
				break;
			if (it.pos != spared)
				mock_zap_leaf(mock, &it);
		}
		KUNIT_ASSERT_FALSE(test, hinted(mock, 0, 1));
		KUNIT_ASSERT_FALSE(test, hinted(mock, 0, 2));
		destroy(test, mock);
	}
}

/* The proof does not survive that the lock is dropped, wherever that is. */
static void forgets_when_it_yields(struct kunit *test)
{
	u64 pos, fault;

	for (pos = 0; pos < 2 * TABLE_PAGES; pos++) {
		for (fault = 0; fault < 3 * TABLE_PAGES; fault++) {
			struct kvm_pt_mock *mock = create(test);

			map(mock, 0, 2 * TABLE_PAGES, 1);
			zap_and_yield(mock, 0, 2 * TABLE_PAGES, pos, fault);
			KUNIT_ASSERT_EQ(test, !!mock->page[fault].frame,
					fault < pos || fault >= 2 * TABLE_PAGES);
			KUNIT_ASSERT_FALSE(test, hinted(mock, fault, 1) &&
					   mock->page[fault].frame);
			destroy(test, mock);
		}
	}
}

static void fault_clears_all_levels(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	map(mock, 0, UPPER_PAGES, 1);
	zap(mock, 0, UPPER_PAGES);

	mock_fault(mock, 3 * TABLE_PAGES, 0, true);
	KUNIT_EXPECT_FALSE(test, hinted(mock, 0, 2));
	KUNIT_EXPECT_FALSE(test, hinted(mock, 3 * TABLE_PAGES, 1));
	KUNIT_EXPECT_TRUE(test, hinted(mock, 2 * TABLE_PAGES, 1));
	KUNIT_EXPECT_EQ(test, zap(mock, 0, UPPER_PAGES), 1);
	KUNIT_EXPECT_TRUE(test, hinted(mock, 0, 2));
	destroy(test, mock);
}

static void huge_leaf_at_hinted_entry(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	map(mock, 0, UPPER_PAGES, 1);
	zap(mock, 0, UPPER_PAGES);

	mock_fault(mock, 0, 1, true);
	KUNIT_EXPECT_FALSE(test, hinted(mock, 0, 2));
	check(test, mock);
	mock_fault(mock, 3, 0, true);	/* splits */
	check(test, mock);
	KUNIT_EXPECT_FALSE(test, hinted(mock, 0, 1));
	KUNIT_EXPECT_EQ(test, zap(mock, 0, UPPER_PAGES), TABLE_PAGES);
	KUNIT_EXPECT_TRUE(test, hinted(mock, 0, 2));
	destroy(test, mock);
}

/* Absent entries may hold anything, even what looks like the hint. */
static void specials_are_absent(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);
	u64 pos;

	map(mock, 0, TABLE_PAGES, 1);
	zap(mock, 0, TABLE_PAGES);
	for (pos = 0; pos < TABLE_PAGES; pos++)
		mock_special(mock, pos);
	KUNIT_EXPECT_TRUE(test, hinted(mock, 0, 1));
	KUNIT_EXPECT_FALSE(test, hinted(mock, 0, 0));

	mock_special(mock, UPPER_PAGES);
	KUNIT_EXPECT_FALSE(test, hinted(mock, UPPER_PAGES, 2));
	mock_fault(mock, UPPER_PAGES, 0, true);
	KUNIT_EXPECT_EQ(test, zap(mock, 0, mock->nr_pages), 1);
	destroy(test, mock);
}

static void leave_hint(kvm_pt_entry_t *ptep, kvm_pt_entry_t *e)
{
}

/* The checks of KVM_PT_PROVE, and of these tests, notice a missing clear. */
static void proof_notices(struct kunit *test)
{
	struct kvm_pt_mock *mock = create(test);

	map(mock, 0, TABLE_PAGES, 1);
	zap(mock, 0, TABLE_PAGES);
	mock_clear_hint = leave_hint;
	mock_fault(mock, 3, 0, true);

	KUNIT_EXPECT_NOT_NULL(test, kvm_pt_mock_check(mock));
	KUNIT_EXPECT_EQ(test, mock_wrong_hints, 0);
	zap(mock, 0, TABLE_PAGES);
	KUNIT_EXPECT_EQ(test, mock_wrong_hints, 1);
	mock_destroy(mock);
}

static void anything(struct kunit *test)
{
	static u8 data[300];
	u64 x = 88172645463325252ULL;
	const char *wrong;
	unsigned int i, len;

	mock_clear_hint = mock_clear_hint_before;
	for (i = 0; i < 200; i++) {
		for (len = 0; len < ARRAY_SIZE(data); len++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			data[len] = x >> 32;
		}
		data[0] = i;
		wrong = kvm_pt_mock_run(data, len);
		KUNIT_ASSERT_STREQ_MSG(test, wrong ?: "good", "good", "run %u", i);
	}
}

static struct kunit_case kvm_pt_cases[] = {
	KUNIT_CASE(lists_nothing),
	KUNIT_CASE(lists_every_leaf),
	KUNIT_CASE(lists_huge_leaves),
	KUNIT_CASE(lists_tables),
	KUNIT_CASE(reads_a_line_at_a_time),
	KUNIT_CASE(pauses),
	KUNIT_CASE(pauses_for_somebody),
	KUNIT_CASE(pauses_behind_a_leaf),
	KUNIT_CASE(learns_a_table),
	KUNIT_CASE(learns_tables_of_tables),
	KUNIT_CASE(learns_later),
	KUNIT_CASE(learns_from_whole_tables_only),
	KUNIT_CASE(learns_not_what_is_spared),
	KUNIT_CASE(forgets_when_it_yields),
	KUNIT_CASE(fault_clears_all_levels),
	KUNIT_CASE(huge_leaf_at_hinted_entry),
	KUNIT_CASE(specials_are_absent),
	KUNIT_CASE(proof_notices),
	KUNIT_CASE(anything),
	{}
};

static struct kunit_suite kvm_pt_suite = {
	.name = "kvm_pt",
	.test_cases = kvm_pt_cases,
};

kunit_test_suite(kvm_pt_suite);
