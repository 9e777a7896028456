/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What KVM does to page tables, done to the mock, as a string of bytes says
 *
 * Each walk may be interrupted after each of its steps, by what the lock that it
 * would hold allows: a walk with mmu_lock held for read by faults, one with
 * mmu_lock held for write by anything, but then it has yielded.  KUnit feeds
 * pseudo-random bytes, the fuzzer in tools/testing/kvm_pt/ its own.
 */
#ifndef __KVM_PT_MOCK_OPS_H
#define __KVM_PT_MOCK_OPS_H

#include "kvm_pt_mock.h"

struct mock_run {
	struct kvm_pt_mock *mock;
	const u8 *data;
	size_t len;
	const char *wrong;
	/* Where the range starts of the walk that was begun last. */
	u64 start;
};

static u8 mock_byte(struct mock_run *run)
{
	if (!run->len)
		return 0;

	run->len--;
	return *run->data++;
}

static u64 mock_pos(struct mock_run *run)
{
	u64 pos = mock_byte(run);

	pos |= (u64)mock_byte(run) << 8;
	return pos & (run->mock->nr_pages - 1);
}

static void mock_range(struct mock_run *run, u64 *start, u64 *end)
{
	u8 what = mock_byte(run);
	unsigned int level = what % mock_shape.levels;
	u64 len = mock_span(level) << (what >> 2 & 3);

	*start = mock_pos(run);
	/* Mostly whole tables, since those are what hints are about. */
	if (what & 0xc0)
		*start &= ~(mock_span(level) - 1);
	*end = min(*start + len, run->mock->nr_pages);
	run->start = *start;
}

static void mock_run_fault(struct mock_run *run)
{
	u8 what = mock_byte(run);
	unsigned int goal = (what & 0x1c) == 0x1c ? (what & 3) % mock_shape.levels : 0;

	run->mock->clock++;
	mock_fault(run->mock, mock_pos(run), goal, what & 0x20);
}

static void mock_say(struct mock_run *run, const char *wrong)
{
	if (!run->wrong)
		run->wrong = wrong;
}

static void mock_run_zap(struct mock_run *run, bool nested);
static void mock_run_split(struct mock_run *run);

/* mmu_lock was dropped: anything may happen. */
static void mock_others(struct mock_run *run)
{
	u8 what = mock_byte(run);
	u64 start;

	switch (what & 7) {
	case 0: case 1: case 2: case 3:
		mock_run_fault(run);
		break;
	case 4:
		mock_special(run->mock, mock_pos(run));
		break;
	case 5:
		mock_run_zap(run, true);
		break;
	case 6:
		start = run->start;
		mock_run_split(run);
		run->start = start;
		break;
	}
	if (what & 0x80)
		mock_run_fault(run);
}

static void mock_check_event(struct mock_run *run, const struct kvm_pt_iter *it,
			     enum kvm_pt_event event, u64 *last)
{
	if (it->pos >= it->end)
		mock_say(run, "a step beyond the range");
	if (it->pos + mock_span(it->level) <= run->start)
		mock_say(run, "a step before the range");
	if (event != KVM_PT_TABLE_AFTER && it->next < *last)
		mock_say(run, "a step back");
	if (event == KVM_PT_PAUSE && it->next == *last && *last)
		mock_say(run, "a pause without progress");
	if (event == KVM_PT_LEAF && !kvm_pt_is_leaf(it->entry, it->level))
		mock_say(run, "that is no leaf");
	if (event == KVM_PT_TABLE && kvm_pt_is_leaf(it->entry, it->level))
		mock_say(run, "that is no table");
	*last = it->next;
}

/* Entries that one step may read: those it may pass, and the way to them. */
static unsigned long mock_reads_max(void)
{
	return 3 * mock_shape.skip_max + 2 * KVM_PT_LINE + 8;
}

static enum kvm_pt_event mock_next(struct mock_run *run, struct kvm_pt_iter *it,
				   u64 *last)
{
	enum kvm_pt_event event;

	mock_reads = 0;
	mock_reads_most = 0;
	/* Walks that do without the shorter way must be as good. */
	if (mock_shape.live_lg2 && kvm_pt_next_near(it))
		event = KVM_PT_LEAF;
	else
		event = kvm_pt_next(it);
	if (it->flags & KVM_PT_PAUSES &&
	    max(mock_reads, mock_reads_most) > mock_reads_max())
		mock_say(run, "a step that reads too much");
	if (event == KVM_PT_PAUSE && !mock_waits)
		mock_say(run, "a pause for nobody");
	if (event != KVM_PT_END)
		mock_check_event(run, it, event, last);

	return event;
}

static void mock_run_zap(struct mock_run *run, bool nested)
{
	u64 start, end, pos, outer = run->start, last = 0;
	u32 since = ++run->mock->clock;
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	u8 yields = nested ? 0 : mock_byte(run);

	mock_waits = !(yields & 8);
	mock_range(run, &start, &end);
	mock_start(run->mock, &it, start, end, 0, KVM_PT_HINTS | KVM_PT_LEARN |
		   (yields & 1 || nested ? KVM_PT_PAUSES : 0));

	while ((event = mock_next(run, &it, &last)) != KVM_PT_END && !run->wrong) {
		if (yields & 2 && (mock_byte(run) & yields) == yields) {
			mock_others(run);
			kvm_pt_restart(&it);
			last = 0;
			continue;
		}
		if (event != KVM_PT_LEAF)
			continue;
		if (yields & 4 && mock_byte(run) & 1) {
			/* Spared: as good as new. */
			run->mock->clock++;
			mock_note_leaf(run->mock, it.pos, it.level, *it.ptep);
		} else {
			mock_zap_leaf(run->mock, &it);
		}
	}

	mock_waits = true;
	/* Nothing is left but what came while the lock was not held. */
	for (pos = start; pos < end && !run->wrong; pos++)
		if (run->mock->page[pos].frame && run->mock->page[pos].born <= since)
			mock_say(run, "a leaf survived");

	run->mock->clock++;
	run->start = outer;
}

/* Write-protection and ageing: readers, met by faults at most. */
static void mock_run_readers(struct mock_run *run, kvm_pt_entry_t bit,
			     unsigned int min_level, unsigned int flags)
{
	u32 since = ++run->mock->clock;
	struct kvm_pt_mock_page *page;
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	u64 start, end, pos, last = 0;
	u8 what = mock_byte(run);

	mock_range(run, &start, &end);
	mock_readers(run->mock, true);
	mock_start(run->mock, &it, start, end, min_level, flags | KVM_PT_HINTS);

	while ((event = mock_next(run, &it, &last)) != KVM_PT_END && !run->wrong) {
		if (what & 1 && mock_byte(run) & 1)
			mock_run_fault(run);
		if (event == KVM_PT_LEAF && kvm_pt_is_live(*it.ptep) &&
		    kvm_pt_is_leaf(*it.ptep, it.level))
			mock_clear_bit(run->mock, &it, bit);
	}
	mock_readers(run->mock, false);

	for (pos = start; pos < end && !run->wrong; pos++) {
		page = &run->mock->page[pos];
		if (page->frame && page->born <= since && page->level >= min_level &&
		    (bit == MOCK_YOUNG ? page->young : page->writable))
			mock_say(run, "a leaf was passed over");
	}
	run->mock->clock++;
}

static void mock_run_split(struct mock_run *run)
{
	struct kvm_pt_iter it;
	u64 start, end, pos, last = 0;
	unsigned int target = mock_byte(run) % mock_shape.levels;
	struct kvm_pt_mock_page *page;
	enum kvm_pt_event event;
	bool full = false;

	mock_range(run, &start, &end);
	if (target + 1 == mock_shape.levels)
		return;

	mock_start(run->mock, &it, start, end, target + 1, KVM_PT_HINTS | KVM_PT_PAUSES);
	while ((event = mock_next(run, &it, &last)) != KVM_PT_END && !run->wrong)
		if (event == KVM_PT_LEAF)
			full |= !mock_split(run->mock, it.pos, it.ptep, it.level);

	for (pos = start; pos < end && !full && !run->wrong; pos++) {
		page = &run->mock->page[pos];
		if (page->frame && page->level > target)
			mock_say(run, "a leaf was not split");
	}
}

/* Whole tables become a leaf if there is a leaf in them. */
static void mock_run_recover(struct mock_run *run)
{
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	u64 start, end, pos, last = 0;
	u8 which = mock_byte(run);

	mock_range(run, &start, &end);
	mock_readers(run->mock, true);
	mock_start(run->mock, &it, start, end, 1,
		   KVM_PT_HINTS | KVM_PT_PAUSES | KVM_PT_TABLES);

	while ((event = mock_next(run, &it, &last)) != KVM_PT_END && !run->wrong) {
		if (event != KVM_PT_TABLE || it.level != 1 || !(which & BIT(it.pos & 7)))
			continue;
		for (pos = it.pos; pos < it.pos + mock_span(1); pos++)
			if (run->mock->page[pos].frame)
				break;
		if (pos == it.pos + mock_span(1))
			continue;
		mock_fault(run->mock, it.pos, 1, true);
	}
	mock_readers(run->mock, false);
}

/* What freeing tables does: nothing may be missed, hints do not count. */
static void mock_run_free(struct mock_run *run)
{
	unsigned int level = mock_byte(run) % (mock_shape.levels - 1) + 1;
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	u64 pos, last = 0;

	run->start = 0;
	mock_start(run->mock, &it, 0, run->mock->nr_pages, 0, KVM_PT_TABLES_AFTER);
	while ((event = mock_next(run, &it, &last)) != KVM_PT_END && !run->wrong) {
		if (event == KVM_PT_LEAF && it.level < level) {
			mock_zap_leaf(run->mock, &it);
		} else if (event == KVM_PT_TABLE_AFTER && it.level <= level) {
			*it.ptep = mock_absent(it.pos);
			mock_free_table(run->mock, it.entry);
		}
	}

	for (pos = 0; pos < run->mock->nr_pages && !run->wrong; pos++)
		if (run->mock->page[pos].frame && run->mock->page[pos].level < level)
			mock_say(run, "a leaf survived the removal of its table");
}

/* All leaves that an exact look at the table finds, one by one. */
static void mock_run_list(struct mock_run *run)
{
	struct kvm_pt_iter it;
	enum kvm_pt_event event;
	u64 start, end, pos, last = 0;
	u8 what = mock_byte(run);

	mock_range(run, &start, &end);
	mock_start(run->mock, &it, start, end, 0, what & (KVM_PT_HINTS | KVM_PT_PAUSES));
	pos = start;

	while ((event = mock_next(run, &it, &last)) != KVM_PT_END && !run->wrong) {
		if (event != KVM_PT_LEAF)
			continue;
		for (; pos < it.pos && !run->wrong; pos++)
			if (run->mock->page[pos].frame)
				mock_say(run, "a leaf was not listed");
		pos = it.pos + mock_span(it.level);
	}
	for (; pos < end && !run->wrong; pos++)
		if (run->mock->page[pos].frame)
			mock_say(run, "a last leaf was not listed");
}

static void mock_run_one(struct mock_run *run)
{
	switch (mock_byte(run) & 15) {
	case 0: case 1: case 2: case 3: case 4:
		mock_run_fault(run);
		break;
	case 5: case 6: case 7: case 8:
		mock_run_zap(run, false);
		break;
	case 9:
		mock_run_readers(run, MOCK_WRITABLE, mock_byte(run) % mock_shape.levels,
				 KVM_PT_PAUSES);
		break;
	case 10:
		mock_run_readers(run, MOCK_YOUNG, 0, KVM_PT_UNLOCKED);
		break;
	case 11:
		mock_run_split(run);
		break;
	case 12:
		mock_run_recover(run);
		break;
	case 13:
		mock_run_free(run);
		break;
	case 14:
		mock_run_list(run);
		break;
	case 15:
		mock_special(run->mock, mock_pos(run));
		break;
	}
}

static const struct kvm_pt_mock_shape mock_shapes[] = {
	/* levels, index, root, live, hint, skip */
	{ 4, 2, 3, 11, 56, 5 },
	{ 4, 3, 3, 0, 9, 6 },
	{ 3, 4, 4, 11, 56, 8 },
	{ 3, 3, 5, 0, 9, 64 },
	{ 2, 4, 8, 11, 56, 7 },
	{ 4, 2, 2, 11, 12, 64 },
};

/**
 * kvm_pt_mock_run() - do what bytes say
 * @data: the bytes
 * @len: how many
 *
 * Return: what went wrong, NULL if nothing did or if there is no memory.
 */
static const char *kvm_pt_mock_run(const u8 *data, size_t len)
{
	struct mock_run run = { .data = data, .len = len };

	run.mock = mock_create(&mock_shapes[mock_byte(&run) % ARRAY_SIZE(mock_shapes)]);
	if (!run.mock)
		return NULL;

	while (run.len && !run.wrong) {
		mock_run_one(&run);
		if (!run.wrong)
			run.wrong = kvm_pt_mock_check(run.mock);
	}

	mock_destroy(run.mock);
	return run.wrong;
}

#endif /* __KVM_PT_MOCK_OPS_H */
