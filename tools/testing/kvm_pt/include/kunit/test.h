/* SPDX-License-Identifier: GPL-2.0 */
/* As much of KUnit as tests of pure functions use: the suite becomes main(). */
#ifndef __KUNIT_TEST_H
#define __KUNIT_TEST_H

#include <linux/kvm_pt_shim.h>

struct kunit {
	const char *name;
	int failures;
};

struct kunit_case {
	void (*run)(struct kunit *test);
	const char *name;
};

struct kunit_suite {
	const char *name;
	struct kunit_case *test_cases;
};

#define KUNIT_CASE(fn)	{ fn, #fn }

#define kunit_fail(test, what, stop) do {					\
	fprintf(stderr, "# %s: %s:%d: %s\n", (test)->name, __FILE__, __LINE__, what); \
	(test)->failures++;							\
	if (stop)								\
		exit(1);							\
} while (0)

#define kunit_want(test, ok, stop) do {						\
	if (!(ok))								\
		kunit_fail(test, #ok, stop);					\
} while (0)

#define kunit_compare(test, a, op, b, stop) do {				\
	__auto_type _left = (a);						\
	__auto_type _right = (b);						\
										\
	if (_left op _right)							\
		break;								\
	fprintf(stderr, "# %lld and %lld:\n", (long long)_left, (long long)_right); \
	kunit_fail(test, #a " " #op " " #b, stop);				\
} while (0)

#define KUNIT_EXPECT_EQ(test, a, b)		kunit_compare(test, a, ==, b, 0)
#define KUNIT_EXPECT_LE(test, a, b)		kunit_compare(test, a, <=, b, 0)
#define KUNIT_EXPECT_GE(test, a, b)		kunit_compare(test, a, >=, b, 0)
#define KUNIT_EXPECT_GT(test, a, b)		kunit_compare(test, a, >, b, 0)
#define KUNIT_EXPECT_TRUE(test, a)		kunit_want(test, a, 0)
#define KUNIT_EXPECT_FALSE(test, a)		kunit_want(test, !(a), 0)
#define KUNIT_EXPECT_NOT_NULL(test, a)		kunit_want(test, a, 0)
#define KUNIT_EXPECT_STREQ(test, a, b)		kunit_want(test, !strcmp(a, b), 0)
#define KUNIT_ASSERT_EQ(test, a, b)		kunit_compare(test, a, ==, b, 1)
#define KUNIT_ASSERT_GE(test, a, b)		kunit_compare(test, a, >=, b, 1)
#define KUNIT_ASSERT_FALSE(test, a)		kunit_want(test, !(a), 1)
#define KUNIT_ASSERT_NOT_NULL(test, a)		kunit_want(test, a, 1)
#define KUNIT_ASSERT_STREQ_MSG(test, a, b, fmt, ...)				\
	kunit_want(test, !strcmp(a, b), 1)

#define kunit_test_suite(suite)							\
int main(void)									\
{										\
	struct kunit test = {};							\
	struct kunit_case *c;							\
	int n = 0, failed = 0;							\
										\
	for (c = (suite).test_cases; c->run; c++) {				\
		test = (struct kunit){ .name = c->name };			\
		c->run(&test);							\
		printf("%s %d %s\n", test.failures ? "not ok" : "ok", ++n, c->name); \
		failed += !!test.failures;					\
	}									\
	return !!failed;							\
}

#endif
