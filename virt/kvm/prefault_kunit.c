// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests for the arithmetic of KVM's prefault window: what is promised, not
 * how it is computed.
 */
#include <kunit/test.h>

#include <linux/kvm_host.h>
#include <linux/kvm_prefault.h>

/* More guest memory than any architecture can address has no gfn from here on. */
#define GFN_END		BIT_ULL(64 - PAGE_SHIFT)

static void expect_same(struct kunit *test, struct kvm_prefault_window w,
			gfn_t want_gfn, unsigned int want_nr)
{
	KUNIT_EXPECT_EQ(test, w.gfn, want_gfn);
	KUNIT_EXPECT_EQ(test, w.nr, want_nr);
}

static void expect_window(struct kunit *test, gfn_t gfn, u64 nr, gfn_t base,
			  u64 npages, gfn_t want_gfn, unsigned int want_nr)
{
	expect_same(test, kvm_prefault_window(gfn, nr, base, npages), want_gfn, want_nr);
}

static void window_inside_slot(struct kunit *test)
{
	expect_window(test, 0x1234, 16, 0x1000, 0x1000, 0x1230, 16);
	expect_window(test, 0x1230, 16, 0x1000, 0x1000, 0x1230, 16);
	expect_window(test, 0x123f, 16, 0x1000, 0x1000, 0x1230, 16);
	expect_window(test, 0x1234, 512, 0, 0x10000, 0x1200, 512);
	expect_window(test, 0x1235, 2, 0x1000, 0x1000, 0x1234, 2);
}

static void window_cut_by_slot(struct kunit *test)
{
	/* At its start, at its end, at both. */
	expect_window(test, 0x1210, 512, 0x1208, 0x1000, 0x1208, 0x1400 - 0x1208);
	expect_window(test, 0x1210, 512, 0x1000, 0x300, 0x1200, 0x100);
	expect_window(test, 0x1210, 512, 0x1203, 0x10, 0x1203, 0x10);

	/* The faulting gfn is the first or the last one, or both. */
	expect_window(test, 0x1203, 512, 0x1203, 0x10, 0x1203, 0x10);
	expect_window(test, 0x1212, 512, 0x1203, 0x10, 0x1203, 0x10);
	expect_window(test, 0x1203, 512, 0x1203, 1, 0x1203, 1);

	/* The slot ends or starts exactly where the window does. */
	expect_window(test, 0x11ff, 512, 0x1000, 0x200, 0x1000, 0x200);
	expect_window(test, 0x1200, 512, 0x1200, 0x200, 0x1200, 0x200);
}

static void window_capped(struct kunit *test)
{
	expect_window(test, 0x1234, 1024, 0, 0x100000, 0x1200, 512);
	expect_window(test, 0x1234, KVM_PREFAULT_SIZE_MAX >> PAGE_SHIFT, 0, 0x100000,
		      0x1200, 512);
	/* The block is aligned to what is left of the window, not to its size. */
	expect_window(test, 0x1234, 4096, 0x1210, 0x100000, 0x1210, 0x1400 - 0x1210);
	expect_window(test, 0x1234, BIT_ULL(63), 0, 0x100000, 0x1200, 512);
}

static void window_at_the_top(struct kunit *test)
{
	expect_window(test, GFN_END - 1, 512, GFN_END - 0x1000, 0x1000,
		      GFN_END - 512, 512);
	expect_window(test, GFN_END - 1, 512, GFN_END - 3, 3, GFN_END - 3, 3);
	expect_window(test, GFN_END - 1, 512, GFN_END - 1, 1, GFN_END - 1, 1);
	expect_window(test, 0, 512, 0, GFN_END, 0, 512);
	expect_window(test, GFN_END - 1, 512, 0, GFN_END, GFN_END - 512, 512);
}

static void expect_huge_window(struct kunit *test, gfn_t gfn, u64 nr, gfn_t base,
			       u64 npages, gfn_t want_gfn, unsigned int want_nr)
{
	expect_same(test, kvm_prefault_huge_window(gfn, nr, 9, base, npages), want_gfn,
		    want_nr);
}

static void window_of_huge_pages(struct kunit *test)
{
	expect_huge_window(test, 0x12345, 8, 0, 0x100000, 0x12000, 8);
	expect_huge_window(test, 0x12345, 2, 0x12000, 0x1000, 0x12000, 2);
	expect_huge_window(test, 0x7ffff, 1024, 0, 0x100000, 0x40000, 512);

	/* Edges of the slot that are those of a huge page, or not. */
	expect_huge_window(test, 0x12400, 8, 0x12200, 0x1000, 0x12200, 7);
	expect_huge_window(test, 0x12400, 8, 0x12201, 0x1000, 0x12400, 6);
	expect_huge_window(test, 0x12345, 8, 0, 0x12a00, 0x12000, 5);
	expect_huge_window(test, 0x12345, 8, 0, 0x12bff, 0x12000, 5);

	/* A slot with a single whole huge page. */
	expect_huge_window(test, 0x12345, 8, 0x121ff, 0x400, 0x12200, 1);
	expect_huge_window(test, 0x12345, 8, 0x12200, 0x200, 0x12200, 1);
}

static void check_window(struct kunit *test, gfn_t gfn, u64 nr, gfn_t base, u64 npages)
{
	struct kvm_prefault_window w = kvm_prefault_window(gfn, nr, base, npages);
	gfn_t block = round_down(gfn, nr), end = w.gfn + w.nr;

	if (w.gfn > gfn || end <= gfn)
		KUNIT_FAIL(test, "[%llx, %llx) misses gfn %llx", w.gfn, end, gfn);
	if (w.gfn != max(block, base) || end != min(block + nr, base + npages))
		KUNIT_FAIL(test, "gfn %llx, %llu pages, slot [%llx, %llx): [%llx, %llx)",
			   gfn, nr, base, base + npages, w.gfn, end);
}

/* All slots and faults around a few blocks. */
static void window_everywhere(struct kunit *test)
{
	const gfn_t first = 0x7ff0, last = 0x8010;
	gfn_t base, end, gfn;
	u64 nr;

	for (base = first; base < last; base++)
		for (end = base + 1; end <= last; end++)
			for (gfn = base; gfn < end; gfn++)
				for (nr = 2; nr <= KVM_PREFAULT_PAGES_MAX; nr *= 4)
					check_window(test, gfn, nr, base, end - base);
}

static void size_valid(struct kunit *test)
{
	u64 size;

	KUNIT_EXPECT_TRUE(test, kvm_prefault_size_valid(0, SZ_2M));
	KUNIT_EXPECT_TRUE(test, kvm_prefault_size_valid(0, 0));
	for (size = 2 * PAGE_SIZE; size <= SZ_1G; size *= 2) {
		KUNIT_EXPECT_TRUE(test, kvm_prefault_size_valid(size, SZ_1G));
		KUNIT_EXPECT_TRUE(test, kvm_prefault_size_valid(size, size));
	}
}

static void size_invalid(struct kunit *test)
{
	const u64 sizes[] = {
		1, 2, PAGE_SIZE / 2, PAGE_SIZE, PAGE_SIZE + 1, 2 * PAGE_SIZE - 1,
		2 * PAGE_SIZE + 1, 3 * PAGE_SIZE, SZ_1G - 1, SZ_1G + 1, 2ULL * SZ_1G,
		SZ_1G + PAGE_SIZE, BIT_ULL(32), BIT_ULL(32) | SZ_2M, BIT_ULL(63), U64_MAX,
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		KUNIT_EXPECT_FALSE_MSG(test, kvm_prefault_size_valid(sizes[i], SZ_1G),
				       "%llu", sizes[i]);

	KUNIT_EXPECT_FALSE(test, kvm_prefault_size_valid(4 * PAGE_SIZE, 2 * PAGE_SIZE));
	KUNIT_EXPECT_FALSE(test, kvm_prefault_size_valid(2 * PAGE_SIZE, 0));
}

static void enabled(struct kunit *test)
{
	KUNIT_EXPECT_FALSE(test, kvm_prefault_enabled(0));
	KUNIT_EXPECT_FALSE(test, kvm_prefault_enabled(KVM_PREFAULT_SET));
	KUNIT_EXPECT_FALSE(test, kvm_prefault_enabled(KVM_PREFAULT_FLAGS));
	KUNIT_EXPECT_TRUE(test, kvm_prefault_enabled(2 * PAGE_SIZE));
	KUNIT_EXPECT_TRUE(test, kvm_prefault_enabled(KVM_PREFAULT_SIZE_MAX |
						     KVM_PREFAULT_FLAGS));

	/* No window may look like a flag. */
	KUNIT_EXPECT_LT(test, (unsigned long)KVM_PREFAULT_FLAGS, 2 * PAGE_SIZE);
}

/* All there is, whether on or off: nothing is allocated when a window is set. */
static void memory_of_a_vcpu(struct kunit *test)
{
	KUNIT_EXPECT_LE(test, sizeof_field(struct kvm_vcpu, prefault) +
			      sizeof_field(struct kvm_vcpu, prefault_huge), 1024);
}

static struct kunit_case kvm_prefault_cases[] = {
	KUNIT_CASE(window_inside_slot),
	KUNIT_CASE(window_cut_by_slot),
	KUNIT_CASE(window_capped),
	KUNIT_CASE(window_at_the_top),
	KUNIT_CASE(window_of_huge_pages),
	KUNIT_CASE(window_everywhere),
	KUNIT_CASE(size_valid),
	KUNIT_CASE(size_invalid),
	KUNIT_CASE(enabled),
	KUNIT_CASE(memory_of_a_vcpu),
	{}
};

static struct kunit_suite kvm_prefault_suite = {
	.name = "kvm_prefault",
	.test_cases = kvm_prefault_cases,
};

kunit_test_suite(kvm_prefault_suite);
