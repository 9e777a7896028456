// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of walks of the TDP MMU and of the hints that they leave
 *
 * The tables are real ones, made by kvm_tdp_mmu_map(), of a VM and a vCPU which
 * are no more than what the TDP MMU looks at: no hardware uses the tables.  They
 * are checked without the walker.
 */
#include <kunit/test.h>

#include <linux/kvm_host.h>
#include <linux/sched.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "spte.h"
#include "tdp_iter.h"
#include "tdp_mmu.h"

#define TABLE		((gfn_t)SPTE_ENT_PER_PAGE)
/* Of the memslot: what two entries of level 2 map. */
#define FIRST		(3 * TABLE * TABLE)
#define NR_PAGES	(2 * TABLE * TABLE)
#define CACHED		8

struct fixture {
	struct kvm *kvm;
	struct kvm_vcpu *vcpu;
	struct kvm_memory_slot slot;
	struct kvm_mmu_page *root;
	struct kvm_mmu_page *other;
	struct page *page;
};

/* The SPTE of @level, counted from 0, for @gfn; NULL if no table has it. */
static u64 *entry(struct kvm_mmu_page *root, gfn_t gfn, unsigned int level)
{
	unsigned int i = root->role.level - 1;
	u64 *sptep = root->spt + (gfn >> (i * SPTE_LEVEL_BITS)) % TABLE;

	for (; i > level; i--) {
		if (!(*sptep & SPTE_MMU_PRESENT_MASK) || *sptep & PT_PAGE_SIZE_MASK)
			return NULL;
		sptep = (u64 *)__va(spte_to_pfn(*sptep) << PAGE_SHIFT) +
			(gfn >> ((i - 1) * SPTE_LEVEL_BITS)) % TABLE;
	}

	return sptep;
}

static bool mapped(struct kvm_mmu_page *root, gfn_t gfn)
{
	u64 *sptep = entry(root, gfn, 0);

	return sptep && *sptep & SPTE_MMU_PRESENT_MASK;
}

static bool hinted(struct kvm_mmu_page *root, gfn_t gfn, unsigned int level)
{
	u64 *sptep = entry(root, gfn, level);

	return sptep && *sptep & SPTE_MMU_PRESENT_MASK && *sptep & SPTE_EMPTY_MASK;
}

static unsigned int count(struct fixture *f, gfn_t start, gfn_t end)
{
	unsigned int nr = 0;

	for (; start < end; start++)
		nr += mapped(f->root, start);

	return nr;
}

static void top_up(struct kunit *test)
{
	struct kvm_vcpu_arch *arch = &((struct fixture *)test->priv)->vcpu->arch;

	KUNIT_ASSERT_EQ(test, 0,
			kvm_mmu_topup_memory_cache(&arch->mmu_page_header_cache, CACHED));
	KUNIT_ASSERT_EQ(test, 0,
			kvm_mmu_topup_memory_cache(&arch->mmu_shadow_page_cache, CACHED));
}

/* Huge pages are read-only, and pretend to be of a slot that is logged. */
static void map_level(struct kunit *test, struct kvm_mmu_page *root, gfn_t gfn, int level)
{
	struct fixture *f = test->priv;
	struct kvm_page_fault fault = {
		.addr = gfn << PAGE_SHIFT,
		.is_tdp = true,
		.max_level = level,
		.req_level = level,
		.goal_level = level,
		.gfn = gfn,
		.slot = &f->slot,
		.pfn = page_to_pfn(f->page) & -KVM_PAGES_PER_HPAGE(level),
		.map_writable = level == PG_LEVEL_4K,
	};
	int ret;

	top_up(test);
	f->slot.flags = level > PG_LEVEL_4K ? KVM_MEM_LOG_DIRTY_PAGES : 0;
	f->vcpu->arch.mmu->root.hpa = __pa(root->spt);
	read_lock(&f->kvm->mmu_lock);
	ret = kvm_tdp_mmu_map(f->vcpu, &fault);
	read_unlock(&f->kvm->mmu_lock);
	f->slot.flags = 0;
	KUNIT_ASSERT_EQ(test, ret, RET_PF_FIXED);
}

static void map(struct kunit *test, gfn_t start, gfn_t end)
{
	struct fixture *f = test->priv;

	for (; start < end; start++)
		map_level(test, f->root, start, PG_LEVEL_4K);
}

static bool unmap(struct fixture *f, gfn_t start, gfn_t end)
{
	struct kvm_gfn_range range = {
		.slot = &f->slot, .start = start, .end = end, .may_block = true,
	};
	bool flush;

	write_lock(&f->kvm->mmu_lock);
	flush = kvm_tdp_mmu_unmap_gfn_range(f->kvm, &range, false);
	write_unlock(&f->kvm->mmu_lock);

	return flush;
}

static s64 nr_pages(struct fixture *f, int level)
{
	return atomic64_read(&f->kvm->stat.pages[level - 1]);
}

/* Around the boundary of two tables: what is in the range, and nothing else. */
static void unmaps_the_range(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t first = FIRST + TABLE - 3, last = FIRST + TABLE + 3, start, end;

	for (start = first; start < last; start++) {
		for (end = start + 1; end <= last; end++) {
			map(test, first, last);
			KUNIT_ASSERT_EQ(test, nr_pages(f, PG_LEVEL_4K), last - first);
			KUNIT_ASSERT_TRUE(test, unmap(f, start, end));
			KUNIT_ASSERT_EQ(test, count(f, start, end), 0);
			KUNIT_ASSERT_EQ(test, count(f, first, last),
					last - first - (end - start));
			KUNIT_ASSERT_EQ(test, nr_pages(f, PG_LEVEL_4K),
					last - first - (end - start));
			KUNIT_ASSERT_FALSE(test, unmap(f, start, end));
			unmap(f, first, last);
		}
	}
}

/* Each distance of pages, since what lies between is not read one by one. */
static void unmaps_every_page(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t end = FIRST + 2 * TABLE, step, gfn;

	for (step = 1; step < 300; step += 1 + step / 4) {
		for (gfn = FIRST + step / 2; gfn < end; gfn += step)
			map(test, gfn, gfn + 1);
		KUNIT_ASSERT_TRUE(test, unmap(f, FIRST, end));
		KUNIT_ASSERT_EQ(test, count(f, FIRST, end), 0);
		KUNIT_ASSERT_EQ(test, nr_pages(f, PG_LEVEL_4K), 0);
		KUNIT_ASSERT_TRUE(test, hinted(f->root, FIRST, 1));
		KUNIT_ASSERT_TRUE(test, hinted(f->root, FIRST + TABLE, 1));
	}
}

static void hints_come_and_go(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t gfn = FIRST, other = FIRST + TABLE * TABLE - 1;
	unsigned int level, levels = f->root->role.level;

	map(test, gfn, gfn + TABLE);
	map(test, other, other + 1);

	/* Not all of it. */
	unmap(f, gfn + 1, gfn + TABLE);
	KUNIT_EXPECT_FALSE(test, hinted(f->root, gfn, 1));
	unmap(f, gfn, gfn + 1);
	KUNIT_EXPECT_FALSE(test, hinted(f->root, gfn, 1));

	unmap(f, gfn, gfn + TABLE);
	KUNIT_EXPECT_TRUE(test, hinted(f->root, gfn, 1));
	KUNIT_EXPECT_FALSE(test, hinted(f->root, other, 1));
	KUNIT_EXPECT_FALSE(test, hinted(f->root, gfn, 2));

	/* All that the fourth level has, of which a fifth one may not have more. */
	unmap(f, 0, TABLE << (3 * SPTE_LEVEL_BITS));
	for (level = 1; level < 4; level++)
		KUNIT_EXPECT_TRUE(test, hinted(f->root, other, level));

	map(test, gfn, gfn + 1);
	for (level = 1; level < levels; level++)
		KUNIT_EXPECT_FALSE(test, hinted(f->root, gfn, level));
	KUNIT_EXPECT_TRUE(test, hinted(f->root, other, 1));
	KUNIT_EXPECT_TRUE(test, unmap(f, gfn, gfn + TABLE * TABLE));
	KUNIT_EXPECT_FALSE(test, mapped(f->root, gfn));
	KUNIT_EXPECT_TRUE(test, hinted(f->root, gfn, 1));
}

/* What has been seen before mmu_lock was dropped proves nothing. */
static void yields_without_a_hint(struct kunit *test)
{
	struct fixture *f = test->priv;

	map(test, FIRST, FIRST + 1);
	map(test, FIRST + 300, FIRST + 301);

	preempt_disable();
	set_tsk_need_resched(current);
	set_preempt_need_resched();
	unmap(f, FIRST, FIRST + TABLE);
	preempt_enable();

	KUNIT_EXPECT_EQ(test, count(f, FIRST, FIRST + TABLE), 0);
	KUNIT_EXPECT_FALSE(test, hinted(f->root, FIRST, 1));

	unmap(f, FIRST, FIRST + TABLE);
	KUNIT_EXPECT_TRUE(test, hinted(f->root, FIRST, 1));
}

/* Tables, and hints, are of one root. */
static void every_root_is_unmapped(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct kvm_mmu *mmu = f->vcpu->arch.mmu;

	top_up(test);
	mmu->root_role.guest_mode = 1;
	kvm_tdp_mmu_alloc_root(f->vcpu, false);
	f->other = root_to_sp(mmu->root.hpa);
	mmu->root_role.guest_mode = 0;
	KUNIT_ASSERT_PTR_NE(test, f->other, f->root);

	map(test, FIRST, FIRST + 1);
	unmap(f, FIRST, FIRST + NR_PAGES);
	KUNIT_EXPECT_TRUE(test, hinted(f->root, FIRST, 1));

	map_level(test, f->other, FIRST, PG_LEVEL_4K);
	KUNIT_EXPECT_TRUE(test, mapped(f->other, FIRST));
	KUNIT_EXPECT_TRUE(test, hinted(f->root, FIRST, 1));
	KUNIT_EXPECT_TRUE(test, unmap(f, FIRST, FIRST + NR_PAGES));
	KUNIT_EXPECT_FALSE(test, mapped(f->other, FIRST));
}

/* In roots that hardware does not use, and in those that are going to be freed. */
static void others_are_not_hinted(struct kunit *test)
{
	struct fixture *f = test->priv;

	map(test, FIRST, FIRST + 1);
	unmap(f, FIRST, FIRST + 1);

	write_lock(&f->kvm->mmu_lock);
	f->root->role.is_mirror = 1;
	kvm_tdp_mmu_zap_leafs(f->kvm, FIRST, FIRST + NR_PAGES, false);
	f->root->role.is_mirror = 0;
	write_unlock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_FALSE(test, hinted(f->root, FIRST, 1));

	map(test, FIRST, FIRST + 1);
	f->root->role.invalid = 1;
	unmap(f, FIRST, FIRST + NR_PAGES);
	f->root->role.invalid = 0;
	KUNIT_EXPECT_FALSE(test, mapped(f->root, FIRST));
	KUNIT_EXPECT_FALSE(test, hinted(f->root, FIRST, 1));

	unmap(f, FIRST, FIRST + NR_PAGES);
	KUNIT_EXPECT_TRUE(test, hinted(f->root, FIRST, 1));
}

static bool writable(struct fixture *f, gfn_t gfn)
{
	return *entry(f->root, gfn, 0) & PT_WRITABLE_MASK;
}

static void write_protects_and_ages(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t gfn = FIRST + TABLE + 7;
	struct kvm_gfn_range range = {
		.slot = &f->slot, .start = FIRST, .end = FIRST + NR_PAGES,
	};

	map(test, gfn, gfn + 1);
	unmap(f, FIRST, FIRST + NR_PAGES);

	/* Nothing is there, and then one page is. */
	read_lock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_FALSE(test, kvm_tdp_mmu_wrprot_slot(f->kvm, &f->slot, PG_LEVEL_4K));
	KUNIT_EXPECT_FALSE(test, kvm_tdp_mmu_age_gfn_range(f->kvm, &range));
	read_unlock(&f->kvm->mmu_lock);

	map(test, gfn, gfn + 1);
	KUNIT_EXPECT_TRUE(test, writable(f, gfn));
	read_lock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_TRUE(test, kvm_tdp_mmu_test_age_gfn(f->kvm, &range));
	KUNIT_EXPECT_TRUE(test, kvm_tdp_mmu_age_gfn_range(f->kvm, &range));
	KUNIT_EXPECT_FALSE(test, kvm_tdp_mmu_age_gfn_range(f->kvm, &range));
	KUNIT_EXPECT_TRUE(test, kvm_tdp_mmu_wrprot_slot(f->kvm, &f->slot, PG_LEVEL_4K));
	KUNIT_EXPECT_FALSE(test, kvm_tdp_mmu_wrprot_slot(f->kvm, &f->slot, PG_LEVEL_4K));
	read_unlock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_FALSE(test, writable(f, gfn));
}

static void unmaps_and_splits_huge_pages(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t gfn = FIRST + 3 * TABLE;

	/* Beside an empty table, and above one: whoever maps it clears all hints. */
	map(test, gfn + TABLE, gfn + TABLE + 1);
	unmap(f, FIRST, FIRST + NR_PAGES);
	map_level(test, f->root, gfn, PG_LEVEL_2M);
	KUNIT_EXPECT_FALSE(test, hinted(f->root, gfn, 2));
	KUNIT_EXPECT_EQ(test, nr_pages(f, PG_LEVEL_2M), 1);
	KUNIT_EXPECT_TRUE(test, unmap(f, gfn + 3, gfn + 4));
	KUNIT_EXPECT_EQ(test, nr_pages(f, PG_LEVEL_2M), 0);
	KUNIT_EXPECT_EQ(test, *entry(f->root, gfn, 1), SHADOW_NONPRESENT_VALUE);

	map_level(test, f->root, gfn, PG_LEVEL_2M);
	write_lock(&f->kvm->mmu_lock);
	kvm_tdp_mmu_try_split_huge_pages(f->kvm, &f->slot, FIRST, FIRST + NR_PAGES,
					 PG_LEVEL_4K, false);
	write_unlock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_EQ(test, count(f, gfn, gfn + TABLE), TABLE);
	KUNIT_EXPECT_FALSE(test, hinted(f->root, gfn, 1));
	KUNIT_EXPECT_TRUE(test, unmap(f, gfn + 3, gfn + 4));
	KUNIT_EXPECT_EQ(test, count(f, gfn, gfn + TABLE), TABLE - 1);
	KUNIT_EXPECT_EQ(test, nr_pages(f, PG_LEVEL_4K), TABLE - 1);
}

/* NX huge page recovery compares whole SPTEs. */
static void recovers_hinted_tables(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct kvm_mmu_page *sp;
	bool zapped;

	map(test, FIRST, FIRST + 1);
	unmap(f, FIRST, FIRST + TABLE);
	KUNIT_ASSERT_TRUE(test, hinted(f->root, FIRST, 1));
	sp = spte_to_child_sp(*entry(f->root, FIRST, 1));

	read_lock(&f->kvm->mmu_lock);
	rcu_read_lock();
	zapped = kvm_tdp_mmu_zap_possible_nx_huge_page(f->kvm, sp);
	rcu_read_unlock();
	read_unlock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_TRUE(test, zapped);
	KUNIT_EXPECT_EQ(test, *entry(f->root, FIRST, 1), SHADOW_NONPRESENT_VALUE);

	map(test, FIRST, FIRST + 1);
	KUNIT_EXPECT_TRUE(test, mapped(f->root, FIRST));
}

static const unsigned int roots[] = { 4, 5 };

static void describe(const unsigned int *levels, char *name)
{
	snprintf(name, KUNIT_PARAM_DESC_SIZE, "%u levels", *levels);
}

KUNIT_ARRAY_PARAM(root, roots, describe);

/* Without huge pages: whether there may be any depends on other memslots. */
static void init_slot(struct kunit *test, struct kvm_memory_slot *slot)
{
	const unsigned long nr = NR_PAGES / KVM_PAGES_PER_HPAGE(PG_LEVEL_2M);
	struct kvm_lpage_info *info;
	unsigned long i;

	info = kunit_kcalloc(test, nr, sizeof(*info), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, info);
	for (i = 0; i < nr; i++)
		info[i].disallow_lpage = 1;

	slot->base_gfn = FIRST;
	slot->npages = NR_PAGES;
	slot->arch.lpage_info[0] = info;
}

static int tdp_mmu_init(struct kunit *test)
{
	struct fixture *f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);
	struct kvm_vcpu *vcpu;
	struct kvm_mmu *mmu;

	KUNIT_ASSERT_NOT_NULL(test, f);
	if (!tdp_mmu_enabled || !mmu_page_header_cache)
		kunit_skip(test, "No TDP MMU");
	if (tdp_empty_hint <= 0)
		kunit_skip(test, "No hints, see kvm.tdp_empty_hint");

	/* Too large for a stack, and for kmalloc() with some options. */
	f->kvm = kvzalloc_obj(*f->kvm);
	f->vcpu = kvzalloc_obj(*f->vcpu);
	f->page = alloc_page(GFP_KERNEL);
	test->priv = f;
	KUNIT_ASSERT_NOT_NULL(test, f->kvm);
	KUNIT_ASSERT_NOT_NULL(test, f->vcpu);
	KUNIT_ASSERT_NOT_NULL(test, f->page);

	rwlock_init(&f->kvm->mmu_lock);
	xa_init(&f->kvm->vcpu_array);
	kvm_mmu_init_tdp_mmu(f->kvm);

	init_slot(test, &f->slot);

	vcpu = f->vcpu;
	vcpu->kvm = f->kvm;
	vcpu->arch.mmu_page_header_cache.kmem_cache = mmu_page_header_cache;
	vcpu->arch.mmu_page_header_cache.gfp_zero = __GFP_ZERO;
	vcpu->arch.mmu_shadow_page_cache.init_value = SHADOW_NONPRESENT_VALUE;

	mmu = &vcpu->arch.root_mmu;
	vcpu->arch.mmu = mmu;
	mmu->root_role.level = *(const unsigned int *)test->param_value;
	mmu->root_role.direct = 1;
	mmu->root_role.access = ACC_ALL;
	mmu->root_role.ad_disabled = !kvm_ad_enabled;

	top_up(test);
	kvm_tdp_mmu_alloc_root(vcpu, false);
	f->root = root_to_sp(mmu->root.hpa);
	return 0;
}

static void tdp_mmu_exit(struct kunit *test)
{
	struct fixture *f = test->priv;

	if (!f)
		return;

	if (f->root) {
		/* The vCPU's references. */
		kvm_tdp_mmu_put_root(f->kvm, f->root);
		if (f->other)
			kvm_tdp_mmu_put_root(f->kvm, f->other);
		kvm_mmu_uninit_tdp_mmu(f->kvm);
		KUNIT_EXPECT_EQ(test, nr_pages(f, PG_LEVEL_4K), 0);
		KUNIT_EXPECT_EQ(test, nr_pages(f, PG_LEVEL_2M), 0);
	}
	if (f->vcpu) {
		kvm_mmu_free_memory_cache(&f->vcpu->arch.mmu_page_header_cache);
		kvm_mmu_free_memory_cache(&f->vcpu->arch.mmu_shadow_page_cache);
	}
	if (f->page)
		__free_page(f->page);
	kvfree(f->vcpu);
	kvfree(f->kvm);
}

static struct kunit_case tdp_mmu_cases[] = {
	KUNIT_CASE_PARAM(unmaps_the_range, root_gen_params),
	KUNIT_CASE_PARAM(unmaps_every_page, root_gen_params),
	KUNIT_CASE_PARAM(hints_come_and_go, root_gen_params),
	KUNIT_CASE_PARAM(yields_without_a_hint, root_gen_params),
	KUNIT_CASE_PARAM(every_root_is_unmapped, root_gen_params),
	KUNIT_CASE_PARAM(others_are_not_hinted, root_gen_params),
	KUNIT_CASE_PARAM(write_protects_and_ages, root_gen_params),
	KUNIT_CASE_PARAM(unmaps_and_splits_huge_pages, root_gen_params),
	KUNIT_CASE_PARAM(recovers_hinted_tables, root_gen_params),
	{}
};

static struct kunit_suite tdp_mmu_suite = {
	.name = "kvm_tdp_mmu",
	.init = tdp_mmu_init,
	.exit = tdp_mmu_exit,
	.test_cases = tdp_mmu_cases,
};

kunit_test_suite(tdp_mmu_suite);
