/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The little of KUnit that tests of pure functions use, for native programs:
 * the suite becomes main(). Output is TAP.
 */
#ifndef NATIVE_KUNIT_TEST_H
#define NATIVE_KUNIT_TEST_H

#include <stdio.h>

#include "../kernel.h"

struct kunit {
	bool failed;
};

struct kunit_case {
	void (*run)(struct kunit *test);
	const char *name;
};

struct kunit_suite {
	const char *name;
	struct kunit_case *test_cases;
};

#define KUNIT_CASE(f)	{ f, #f }

#define KUNIT_COMPARE(test, a, op, b) ({					\
	long long _left = (a), _right = (b);					\
										\
	if (!(_left op _right)) {						\
		printf("# %s:%d: expected %s " #op " %s, these are %lld and %lld\n",	\
		       __FILE__, __LINE__, #a, #b, _left, _right);		\
		(test)->failed = true;						\
	}									\
})

#define KUNIT_EXPECT_EQ(test, a, b)	KUNIT_COMPARE(test, a, ==, b)
#define KUNIT_EXPECT_LE(test, a, b)	KUNIT_COMPARE(test, a, <=, b)
#define KUNIT_EXPECT_GE(test, a, b)	KUNIT_COMPARE(test, a, >=, b)

#define KUNIT_ASSERT_GE(test, a, b) do {					\
	KUNIT_COMPARE(test, a, >=, b);						\
	if ((test)->failed)							\
		return;								\
} while (0)

static inline int native_kunit_run(const struct kunit_suite *suite)
{
	struct kunit_case *c;
	int failed = 0, nr = 0;

	for (c = suite->test_cases; c->run; c++) {
		struct kunit test = {};

		c->run(&test);
		printf("%sok %d %s.%s\n", test.failed ? "not " : "", ++nr, suite->name, c->name);
		failed += test.failed;
	}
	printf("1..%d\n", nr);
	return !!failed;
}

#define kunit_test_suite(suite)							\
	int main(void)								\
	{									\
		return native_kunit_run(&(suite));				\
	}

#endif /* NATIVE_KUNIT_TEST_H */
