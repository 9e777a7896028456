// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests for the policy of adaptive prefault windows: what is promised of
 * it, on a model of memory that is all resident in the host.
 */
#include <kunit/test.h>

#include <linux/kvm_prefault_policy.h>

/* Memory of 64 MiB in 4K pages, and what KVM has mapped of it. */
#define PAGES		16384

static u8 mapped[PAGES];
static unsigned int nr_mapped, nr_faults, nr_windows;

static void reset(void)
{
	unsigned int i;

	for (i = 0; i < PAGES; i++)
		mapped[i] = 0;
	nr_mapped = 0;
	nr_faults = 0;
	nr_windows = 0;
}

/* The host has the pages in the aligned block of @chunk around each fault. */
static void touch(struct kvm_prefault_policy *policy, unsigned int gfn,
		  unsigned int chunk, unsigned int max)
{
	unsigned int order, i, start, first = 0, last = 0, nr = 0, absent = 0;

	if (mapped[gfn])
		return;
	mapped[gfn] = 1;
	nr_faults++;

	if (kvm_prefault_backoff(policy))
		return;
	order = kvm_prefault_policy_begin(policy, gfn, max);
	if (!order)
		return;

	nr_windows++;
	start = gfn & ~((1U << order) - 1);
	for (i = start; i < start + (1U << order); i++) {
		if (mapped[i])
			continue;
		if ((i ^ gfn) >= chunk) {
			absent++;
			continue;
		}
		mapped[i] = 1;
		first = nr ? first : i;
		last = i;
		nr++;
	}
	nr_mapped += nr;
	kvm_prefault_policy_end(policy, gfn, first, last, nr, absent);
}

/* Goes through all numbers below PAGES, in an order without any locality. */
static unsigned int scramble(unsigned int i, unsigned int seed)
{
	/* Multiplying by odd numbers and xorshifts are bijections. */
	i = (i * 0x2c1b + seed * 0x1d35) & (PAGES - 1);
	i ^= i >> 7;
	i = (i * 0x36d1) & (PAGES - 1);
	i ^= i >> 5;
	return (i * 0x0f4d + seed) & (PAGES - 1);
}

static void expect_dense(struct kunit *test, unsigned int most)
{
	KUNIT_EXPECT_EQ(test, nr_mapped + nr_faults, PAGES);
	KUNIT_EXPECT_LE(test, nr_faults, most);
}

static void stream_forward(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i;

	reset();
	for (i = 0; i < PAGES; i++)
		touch(&policy, i, PAGES, 9);
	expect_dense(test, PAGES / 512 + 8);
}

static void stream_reverse(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i;

	reset();
	for (i = PAGES; i; i--)
		touch(&policy, i - 1, PAGES, 9);
	expect_dense(test, PAGES / 512 + 8);
}

/* It starts in the middle of a block. */
static void stream_unaligned(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i;

	reset();
	for (i = 1023; i < PAGES; i++)
		touch(&policy, i, PAGES, 9);
	KUNIT_EXPECT_LE(test, nr_faults, PAGES / 512 + 10);
}

static void streams_interleaved(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i, j;

	reset();
	for (i = 0; i < PAGES / 8; i++)
		for (j = 0; j < 8; j++)
			touch(&policy, j * PAGES / 8 + i, PAGES, 9);
	expect_dense(test, PAGES / 512 + 8 * 12);
}

static void strided(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i, j;

	reset();
	for (j = 0; j < KVM_PREFAULT_STRIDE_MAX; j++)
		for (i = j; i < PAGES; i += KVM_PREFAULT_STRIDE_MAX)
			touch(&policy, i, PAGES, 9);
	expect_dense(test, PAGES / 512 + 8);
}

static void random_dense(struct kunit *test)
{
	unsigned int i, seed;

	for (seed = 1; seed <= 5; seed++) {
		struct kvm_prefault_policy policy = {};

		reset();
		for (i = 0; i < PAGES; i++)
			touch(&policy, scramble(i, seed), PAGES, 9);
		/* A twentieth of base: half of that is for mapping them. */
		expect_dense(test, PAGES / 20);
	}
}

/* One page in sixteen: what is mapped for nothing costs less than 0.1 of base. */
static void random_sparse(struct kunit *test)
{
	unsigned int i, gfn, seed;

	for (seed = 1; seed <= 5; seed++) {
		struct kvm_prefault_policy policy = {};

		reset();
		for (i = 0; i < PAGES; i++) {
			gfn = scramble(i, seed);
			if (gfn % 16 == gfn / 16 % 16)
				touch(&policy, gfn, PAGES, 9);
		}
		KUNIT_EXPECT_EQ(test, nr_faults, PAGES / 16);
		KUNIT_EXPECT_LE(test, nr_mapped, PAGES / 16);
		KUNIT_EXPECT_LE(test, nr_windows, PAGES / 16 / 16);
	}
}

/* After dense access: what is wasted until there are no windows any more. */
static void dense_then_sparse(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i, order, wasted = 0;

	reset();
	for (i = 0; i < PAGES; i++)
		touch(&policy, scramble(i, 1), PAGES, 9);

	for (i = 0; i < 20000; i++) {
		order = kvm_prefault_policy_begin(&policy, (u64)i << 20, 9);
		if (!order)
			continue;
		wasted += 1U << order;
		kvm_prefault_policy_end(&policy, (u64)i << 20, (u64)i << 20,
					((u64)i << 20) + (1U << order) - 1,
					1U << order, 0);
	}
	KUNIT_EXPECT_LE(test, wasted, KVM_PREFAULT_RECENT * 512 + 8 * KVM_PREFAULT_PATIENCE);

	/* And it has not given up for good. */
	reset();
	for (i = 0; i < PAGES; i++)
		touch(&policy, i, PAGES, 9);
	expect_dense(test, PAGES / 512 + 12);
}

/* Chunks that the host fills as they are touched: windows fit them. */
static void chunks(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i, examined = 0, order;
	u64 gfn;

	reset();
	for (i = 0; i < PAGES; i++)
		touch(&policy, i, 16, 9);
	expect_dense(test, PAGES / 16 + 8);

	for (i = 0; i < 64; i++) {
		gfn = PAGES + i * 16;
		order = kvm_prefault_policy_begin(&policy, gfn, 9);
		KUNIT_EXPECT_GE(test, order, 4);
		examined += 1U << order;
		kvm_prefault_policy_end(&policy, gfn, gfn + 1, gfn + 15, 15,
					(1U << order) - 16);
	}
	KUNIT_EXPECT_LE(test, examined, 64 * 48);
}

static void nothing_there(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i;

	reset();
	for (i = 0; i < PAGES; i++)
		touch(&policy, i, 1, 9);
	KUNIT_EXPECT_EQ(test, nr_faults, PAGES);
	KUNIT_EXPECT_LE(test, nr_windows, PAGES / 65 + 8);
}

/* Within 64 faults of the host having pages again, they are found. */
static void there_again(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i;

	reset();
	for (i = 0; i < PAGES / 2; i++)
		touch(&policy, i, 1, 9);
	nr_faults = 0;
	for (; i < PAGES; i++)
		touch(&policy, i, PAGES, 9);
	KUNIT_EXPECT_LE(test, nr_faults, 64 + PAGES / 2 / 512 + 8);
}

static void order_bounded(struct kunit *test)
{
	unsigned int max, i, order;

	for (max = 1; max <= 18; max++) {
		struct kvm_prefault_policy policy = {};
		u64 gfn;

		for (i = 0; i < 1000; i++) {
			/* Up, then all over the place. */
			gfn = i < 500 ? i << min(max, 9U) : (u64)i << 40;
			order = kvm_prefault_policy_begin(&policy, gfn, max);
			KUNIT_EXPECT_LE(test, order, min(max, KVM_PREFAULT_ORDER_MAX));
			if (order)
				kvm_prefault_policy_end(&policy, gfn, gfn,
							gfn + (1U << order) - 1,
							1U << order, 0);
		}
	}
}

/* The last gfns that there can be are no different. */
static void at_the_top(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	u64 gfn = BIT_ULL(52), first = gfn;
	unsigned int i, order = 0;

	for (i = 0; i < 8; i++) {
		order = kvm_prefault_policy_begin(&policy, first - 1, 9);
		KUNIT_ASSERT_GE(test, order, KVM_PREFAULT_ORDER_MIN);
		gfn = first - 1;
		first = gfn & ~((1ULL << order) - 1);
		kvm_prefault_policy_end(&policy, gfn, first, gfn, gfn - first, 0);
	}
	KUNIT_EXPECT_EQ(test, order, 9);
}

static unsigned int count_skips(struct kvm_prefault_policy *policy)
{
	unsigned int skips = 0;

	while (skips < 1000 && kvm_prefault_backoff(policy))
		skips++;
	return skips;
}

static void window(struct kvm_prefault_policy *policy, unsigned int nr)
{
	kvm_prefault_policy_begin(policy, 0x1000, 9);
	kvm_prefault_policy_end(policy, 0x1000, 0x1000, 0x1000 + nr, nr, 0);
}

static void backoff_doubles(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int want = 1, i;

	KUNIT_EXPECT_EQ(test, count_skips(&policy), 0);

	for (i = 0; i < 20; i++) {
		window(&policy, 0);
		KUNIT_EXPECT_EQ(test, count_skips(&policy), want);
		want = min(2 * want, 64);
	}
}

static void backoff_ends_with_a_hit(struct kunit *test)
{
	struct kvm_prefault_policy policy = {};
	unsigned int i;

	for (i = 0; i < 10; i++) {
		window(&policy, 0);
		count_skips(&policy);
	}
	window(&policy, 1);
	KUNIT_EXPECT_EQ(test, count_skips(&policy), 0);

	/* And starts from the beginning. */
	window(&policy, 0);
	KUNIT_EXPECT_EQ(test, count_skips(&policy), 1);
}

static struct kunit_case kvm_prefault_policy_cases[] = {
	KUNIT_CASE(stream_forward),
	KUNIT_CASE(stream_reverse),
	KUNIT_CASE(stream_unaligned),
	KUNIT_CASE(streams_interleaved),
	KUNIT_CASE(strided),
	KUNIT_CASE(random_dense),
	KUNIT_CASE(random_sparse),
	KUNIT_CASE(dense_then_sparse),
	KUNIT_CASE(chunks),
	KUNIT_CASE(nothing_there),
	KUNIT_CASE(there_again),
	KUNIT_CASE(order_bounded),
	KUNIT_CASE(at_the_top),
	KUNIT_CASE(backoff_doubles),
	KUNIT_CASE(backoff_ends_with_a_hit),
	{}
};

static struct kunit_suite kvm_prefault_policy_suite = {
	.name = "kvm_prefault_policy",
	.test_cases = kvm_prefault_policy_cases,
};

kunit_test_suite(kvm_prefault_policy_suite);
