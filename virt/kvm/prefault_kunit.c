// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests for the arithmetic of KVM's prefault window.
 */
#include <kunit/test.h>

#include <linux/kvm_host.h>
#include <linux/kvm_prefault.h>

static void expect_window(struct kunit *test, gfn_t gfn, u64 nr, gfn_t base,
			  u64 npages, gfn_t want_gfn, unsigned int want_nr)
{
	struct kvm_prefault_window w = kvm_prefault_window(gfn, nr, base, npages);

	KUNIT_EXPECT_EQ(test, w.gfn, want_gfn);
	KUNIT_EXPECT_EQ(test, w.nr, want_nr);
}

static void window_inside_slot(struct kunit *test)
{
	expect_window(test, 0x1234, 16, 0x1000, 0x1000, 0x1230, 16);
	expect_window(test, 0x1230, 16, 0x1000, 0x1000, 0x1230, 16);
	expect_window(test, 0x123f, 16, 0x1000, 0x1000, 0x1230, 16);
	expect_window(test, 0x1234, 512, 0, 0x10000, 0x1200, 512);
}

static struct kunit_case kvm_prefault_cases[] = {
	KUNIT_CASE(window_inside_slot),
	{}
};

static struct kunit_suite kvm_prefault_suite = {
	.name = "kvm_prefault",
	.test_cases = kvm_prefault_cases,
};

kunit_test_suite(kvm_prefault_suite);
