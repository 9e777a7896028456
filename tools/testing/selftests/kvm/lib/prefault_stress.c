// SPDX-License-Identifier: GPL-2.0-only
/*
 * prefault_stress_test: what is in a page, and the guest that checks it.
 */
#include <asm/barrier.h>

#include "prefault_stress.h"
#include "processor.h"
#include "ucall_common.h"

#define STEPS		32
/* Every fourth page of KEEP is a twin of the others: KSM may merge them. */
#define TWIN		0xffff
#define TWIN_WRITES	64

struct stress st;

/* They have two values, so that many are the same at any time. */
static bool is_twin(u64 page)
{
	return page < LOG && page % 4 == 1;
}

u64 stress_word(u64 page, u64 gen)
{
	u64 word;

	if (is_twin(page)) {
		page = TWIN;
		gen %= 2;
	}
	word = page << 48 | (gen & 0xffffff) << 24;
	return word | word * 0x9e3779b97f4a7c15ull >> 40;
}

u32 stress_gen(u64 word)
{
	return word >> 24 & 0xffffff;
}

bool stress_is_word(u64 word, u64 page, u32 lo, u32 hi)
{
	u32 gen = stress_gen(word);

	if (is_twin(page))
		return word == stress_word(page, lo) ||
		       (hi > lo && word == stress_word(page, lo + 1));

	return word == stress_word(page, gen) && gen >= lo && gen <= hi;
}

bool stress_is_untouched(u64 page)
{
	return page >= LOG && page < REFILL && page % 4 == 3;
}

bool stress_is_read_only(u64 page)
{
	return page >= LOG && page < REFILL && page % 4 == 2;
}

/*
 * The guest.
 */

static u64 *guest_page(struct stress_shared *shared, u64 page)
{
	return (u64 *)(PREFAULT_GPA + page * shared->page_size);
}

static void write_page(struct stress_private *me, struct stress_shared *shared, u64 page)
{
	u32 gen = shared->confirmed[page] + 1;

	WRITE_ONCE(shared->announced[page], gen);
	/* Pairs with the second barrier of every reader. */
	smp_wmb();
	WRITE_ONCE(*guest_page(shared, page), stress_word(page, gen));
	/* Pairs with the first one. */
	smp_wmb();
	WRITE_ONCE(shared->confirmed[page], gen);
	WRITE_ONCE(me->written, me->written + 1);
}

static void check_page(struct stress_private *me, struct stress_shared *shared, u64 page)
{
	u32 lo, hi;
	u64 word;

	lo = READ_ONCE(shared->confirmed[page]);
	/* Pairs with write_page(), as does the next one. */
	smp_rmb();
	word = READ_ONCE(*guest_page(shared, page));
	/* See above. */
	smp_rmb();
	hi = READ_ONCE(shared->announced[page]);

	__GUEST_ASSERT(stress_is_word(word, page, lo, hi),
		       "vCPU %u, page %lu: read %lx, generations %u to %u are possible",
		       me->id, page, word, lo, hi);
	WRITE_ONCE(me->checked, me->checked + 1);
}

static void watch_page(struct stress_private *me, struct stress_shared *shared, u64 page)
{
	u32 *slot_seq = &shared->slot_seq[page / REGION_PAGES];
	u32 seq, slot;
	u64 word;

	slot = READ_ONCE(*slot_seq);
	seq = READ_ONCE(shared->seq[page]);
	/* Pairs with the barriers of who changes these, as does the next one. */
	smp_rmb();
	word = READ_ONCE(*guest_page(shared, page));
	/* See above. */
	smp_rmb();
	if (seq & 1 || seq != READ_ONCE(shared->seq[page]) ||
	    slot & 1 || slot != READ_ONCE(*slot_seq))
		return;

	__GUEST_ASSERT(word == stress_word(page, seq),
		       "vCPU %u, page %lu: expected %lx (step %u), read %lx",
		       me->id, page, stress_word(page, seq), seq, word);
	WRITE_ONCE(me->checked, me->checked + 1);
}

static bool wants_to_write(struct stress_private *me, struct stress_shared *shared, u64 page)
{
	return page / 4 % shared->nr_vcpus == me->id && !stress_is_read_only(page) &&
	       !random_below(&me->rng, is_twin(page) ? TWIN_WRITES : 2);
}

static void touch_page(struct stress_private *me, struct stress_shared *shared, u64 page)
{
	if (stress_is_untouched(page))
		return;
	if (page >= REFILL)
		watch_page(me, shared, page);
	else if (wants_to_write(me, shared, page))
		write_page(me, shared, page);
	else
		check_page(me, shared, page);
}

/* Single pages and runs of them, so that adaptive windows grow and shrink. */
static void touch_some(struct stress_private *me, struct stress_shared *shared)
{
	u64 page = random_below(&me->rng, HOT);
	u64 nr = random_below(&me->rng, 2) ? 1 : random_below(&me->rng, GROUP);

	for (; nr && page < HOT; nr--, page++)
		touch_page(me, shared, page);
}

/* In another order each time: any page may be the neighbour of a fault. */
static void touch_hot(struct stress_private *me, struct stress_shared *shared)
{
	u64 first = random_below(&me->rng, HOT_PAGES);
	u64 stride = 2 * random_below(&me->rng, HOT_PAGES / 2) + 1;
	u64 i;

	for (i = 0; i < HOT_PAGES; i++)
		touch_page(me, shared, HOT + (first + i * stride) % HOT_PAGES);
}

void stress_guest_code(struct stress_private *me, struct stress_shared *shared)
{
	u64 step;

	for (;;) {
		for (step = 0; step < STEPS; step++) {
			touch_some(me, shared);
			touch_hot(me, shared);
		}
		GUEST_SYNC(0);
	}
}
