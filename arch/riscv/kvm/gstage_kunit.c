// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of walks of the G-stage and of the hints that they leave
 *
 * The tables are real ones, in each format, though of no VM: no hardware uses
 * them, and nobody has to be told of a change.  They are looked at without the
 * walker.
 */
#include <kunit/test.h>

#include <linux/kvm_host.h>

#include <asm/kvm_gstage.h>
#include <asm/kvm_mmu.h>

#define LG2	kvm_riscv_gstage_index_bits
#define TABLE	BIT_ULL(LG2)
#define HINT	BIT(9)
#define MAX_TABLES	64

struct fixture {
	struct kvm *kvm;
	struct kvm_gstage gstage;
	struct kvm_mmu_memory_cache cache;
	/* A page whose index in the root is one that only roots have. */
	gfn_t gfn;
};

static unsigned long *table_of(unsigned long pte)
{
	return pfn_to_virt(__page_val_to_pfn(pte));
}

/* The entry of @level for @gfn, NULL if there is no table that has it. */
static unsigned long *entry(struct fixture *f, gfn_t gfn, unsigned int level)
{
	unsigned int i = f->gstage.pgd_levels - 1;
	unsigned long *ptep = (unsigned long *)f->gstage.pgd + (gfn >> (i * LG2));

	for (; i > level; i--) {
		if (!*ptep || *ptep & _PAGE_LEAF)
			return NULL;
		ptep = table_of(*ptep) + (gfn >> ((i - 1) * LG2)) % TABLE;
	}

	return ptep;
}

static unsigned long pte(struct fixture *f, gfn_t gfn)
{
	unsigned long *ptep = entry(f, gfn, 0);

	return ptep ? *ptep : 0;
}

static bool hinted(struct fixture *f, gfn_t gfn, unsigned int level)
{
	unsigned long *ptep = entry(f, gfn, level);

	return ptep && *ptep & HINT;
}

static unsigned int count(struct fixture *f, gfn_t start, gfn_t end)
{
	unsigned int nr = 0;

	for (; start < end; start++)
		nr += !!pte(f, start);

	return nr;
}

static void map(struct kunit *test, gfn_t start, gfn_t end)
{
	struct fixture *f = test->priv;
	bool fence_all;
	gfn_t gfn;
	int ret;

	for (gfn = start; gfn < end; gfn++) {
		KUNIT_ASSERT_EQ(test, 0, kvm_mmu_topup_memory_cache(&f->cache, 5));
		read_lock(&f->kvm->mmu_lock);
		ret = kvm_riscv_gstage_install(&f->gstage, &f->cache, gfn << PAGE_SHIFT,
					       kvm_riscv_gstage_leaf(gfn & 0xffff, true, true),
					       &fence_all);
		read_unlock(&f->kvm->mmu_lock);
		KUNIT_ASSERT_EQ(test, ret, KVM_RISCV_FAULT_FIXED);
	}
}

static void map_huge(struct kunit *test, gfn_t gfn, u32 level)
{
	struct fixture *f = test->priv;
	const struct kvm_gstage_mapping map = {
		.addr = gfn << PAGE_SHIFT,
		.level = level,
		.pte = pfn_pte(0, PAGE_WRITE_EXEC),
	};

	KUNIT_ASSERT_EQ(test, 0, kvm_mmu_topup_memory_cache(&f->cache, 5));
	write_lock(&f->kvm->mmu_lock);
	KUNIT_ASSERT_EQ(test, 0, kvm_riscv_gstage_set_pte(&f->gstage, &f->cache, &map));
	write_unlock(&f->kvm->mmu_lock);
}

static bool unmap(struct fixture *f, gfn_t start, gfn_t end)
{
	bool flush;

	write_lock(&f->kvm->mmu_lock);
	flush = kvm_riscv_gstage_unmap_range(&f->gstage, start << PAGE_SHIFT,
					     (end - start) << PAGE_SHIFT, false);
	write_unlock(&f->kvm->mmu_lock);

	return flush;
}

/* Around the boundary of two tables: what is in the range, and nothing else. */
static void unmaps_the_range(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t first = f->gfn + TABLE - 3, last = f->gfn + TABLE + 3, start, end;

	for (start = first; start < last; start++) {
		for (end = start + 1; end <= last; end++) {
			map(test, first, last);
			KUNIT_ASSERT_TRUE(test, unmap(f, start, end));
			KUNIT_ASSERT_EQ(test, count(f, start, end), 0);
			KUNIT_ASSERT_EQ(test, count(f, first, last),
					last - first - (end - start));
			KUNIT_ASSERT_FALSE(test, unmap(f, start, end));
			unmap(f, first, last);
		}
	}
}

static void unmaps_the_last_page(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t end = kvm_riscv_gstage_gpa_size(f->gstage.pgd_levels) >> PAGE_SHIFT;

	map(test, 0, 1);
	map(test, end - 1, end);
	/* What no page can have as its address is no reason to start anew at 0. */
	KUNIT_EXPECT_TRUE(test, unmap(f, end - 1, end + 1));
	KUNIT_EXPECT_EQ(test, pte(f, end - 1), 0);
	KUNIT_EXPECT_NE(test, pte(f, 0), 0);
}

static void hints_come_and_go(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t gfn = f->gfn, other = gfn + TABLE * TABLE - 1;
	unsigned int level, levels = f->gstage.pgd_levels;

	map(test, gfn, gfn + TABLE);
	map(test, other, other + 1);

	/* Not all of it. */
	unmap(f, gfn + 1, gfn + TABLE);
	KUNIT_EXPECT_FALSE(test, hinted(f, gfn, 1));
	unmap(f, gfn, gfn + 1);
	KUNIT_EXPECT_FALSE(test, hinted(f, gfn, 1));

	unmap(f, gfn, gfn + TABLE);
	KUNIT_EXPECT_TRUE(test, hinted(f, gfn, 1));
	KUNIT_EXPECT_FALSE(test, hinted(f, other, 1));
	KUNIT_EXPECT_FALSE(test, hinted(f, gfn, 2));

	/* All that there is. */
	unmap(f, 0, kvm_riscv_gstage_gpa_size(levels) >> PAGE_SHIFT);
	for (level = 1; level < levels; level++)
		KUNIT_EXPECT_TRUE(test, hinted(f, other, level));

	map(test, gfn, gfn + 1);
	for (level = 1; level < levels; level++)
		KUNIT_EXPECT_FALSE(test, hinted(f, gfn, level));
	KUNIT_EXPECT_TRUE(test, hinted(f, other, 1));
	KUNIT_EXPECT_TRUE(test, unmap(f, gfn, gfn + TABLE * TABLE));
	KUNIT_EXPECT_EQ(test, pte(f, gfn), 0);
	KUNIT_EXPECT_TRUE(test, hinted(f, gfn, 1));

	/* Prefault writes to the entry that it gets. */
	KUNIT_EXPECT_NOT_NULL(test, kvm_riscv_gstage_last_level_ptep(&f->gstage,
								     gfn << PAGE_SHIFT));
	for (level = 1; level < levels; level++)
		KUNIT_EXPECT_FALSE(test, hinted(f, gfn, level));
}

static void unmaps_and_splits_huge_pages(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t gfn = f->gfn;
	gpa_t gpa = (gfn + TABLE) << PAGE_SHIFT;

	map_huge(test, gfn, 1);
	KUNIT_EXPECT_TRUE(test, unmap(f, gfn + 3, gfn + 4));
	KUNIT_EXPECT_EQ(test, *entry(f, gfn, 1), 0);

	write_lock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_TRUE(test, kvm_riscv_gstage_make_room(&f->gstage, gfn << PAGE_SHIFT,
							   PUD_SIZE));
	write_unlock(&f->kvm->mmu_lock);

	/* Of a page two levels up one part, as far as small pages go. */
	map_huge(test, gfn, 2);
	write_lock(&f->kvm->mmu_lock);
	/* If it yields it has flushed already: what it returns is up to chance. */
	kvm_riscv_gstage_split_range(&f->gstage, gpa, gpa + PAGE_SIZE);
	KUNIT_EXPECT_FALSE(test, kvm_riscv_gstage_split_range(&f->gstage, gpa,
							      gpa + PAGE_SIZE));
	write_unlock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_NE(test, *entry(f, gfn, 1) & _PAGE_LEAF, 0);
	KUNIT_EXPECT_EQ(test, count(f, gfn, gfn + 3 * TABLE), TABLE);
	KUNIT_EXPECT_EQ(test, pte(f, gfn + TABLE + 5) >> _PAGE_PFN_SHIFT, TABLE + 5);
	KUNIT_EXPECT_EQ(test, *entry(f, gfn + 2 * TABLE, 1) >> _PAGE_PFN_SHIFT, 2 * TABLE);
}

static void write_protects(struct kunit *test)
{
	struct fixture *f = test->priv;
	gfn_t gfn = f->gfn + TABLE - 7, i;
	const unsigned long mask = BIT(3) | BIT(6) | BIT(7) | BIT(12);

	map(test, gfn, gfn + 16);
	write_lock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_TRUE(test, kvm_riscv_gstage_wp_pt_masked(&f->gstage, gfn, mask));
	KUNIT_EXPECT_FALSE(test, kvm_riscv_gstage_wp_pt_masked(&f->gstage, gfn, mask));
	for (i = 0; i < 16; i++)
		KUNIT_EXPECT_EQ(test, !(pte(f, gfn + i) & _PAGE_WRITE), !!(mask & BIT(i)));

	KUNIT_EXPECT_TRUE(test, kvm_riscv_gstage_wp_range(&f->gstage, gfn << PAGE_SHIFT,
							  (gfn + 15) << PAGE_SHIFT));
	for (i = 0; i < 16; i++)
		KUNIT_EXPECT_EQ(test, !(pte(f, gfn + i) & _PAGE_WRITE), i < 15);
	write_unlock(&f->kvm->mmu_lock);
}

static void ages(struct kunit *test)
{
	struct fixture *f = test->priv;
	gpa_t start = f->gfn << PAGE_SHIFT, end = (f->gfn + 4) << PAGE_SHIFT;

	map(test, f->gfn + 2, f->gfn + 3);
	write_lock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_FALSE(test, kvm_riscv_gstage_age_range(&f->gstage, start,
							    end - 2 * PAGE_SIZE, true));
	KUNIT_EXPECT_TRUE(test, kvm_riscv_gstage_age_range(&f->gstage, start, end, false));
	KUNIT_EXPECT_TRUE(test, kvm_riscv_gstage_age_range(&f->gstage, start, end, true));
	KUNIT_EXPECT_FALSE(test, kvm_riscv_gstage_age_range(&f->gstage, start, end, true));
	write_unlock(&f->kvm->mmu_lock);
}

static void makes_room(struct kunit *test)
{
	struct fixture *f = test->priv;
	gpa_t gpa = f->gfn << PAGE_SHIFT;

	map(test, f->gfn + 9, f->gfn + 10);
	write_lock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_FALSE(test, kvm_riscv_gstage_make_room(&f->gstage, gpa, PMD_SIZE));
	write_unlock(&f->kvm->mmu_lock);

	unmap(f, f->gfn, f->gfn + TABLE);
	KUNIT_EXPECT_TRUE(test, hinted(f, f->gfn, 1));
	write_lock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_TRUE(test, kvm_riscv_gstage_make_room(&f->gstage, gpa, PMD_SIZE));
	write_unlock(&f->kvm->mmu_lock);
	KUNIT_EXPECT_EQ(test, *entry(f, f->gfn, 1), 0);

	/* Nobody may find hinted what holds a huge page now. */
	unmap(f, 0, kvm_riscv_gstage_gpa_size(f->gstage.pgd_levels) >> PAGE_SHIFT);
	KUNIT_EXPECT_TRUE(test, hinted(f, f->gfn, 2));
	map_huge(test, f->gfn, 1);
	KUNIT_EXPECT_FALSE(test, hinted(f, f->gfn, 2));
	KUNIT_EXPECT_TRUE(test, unmap(f, f->gfn, f->gfn + TABLE));
}

/* Takes a reference to each table below @table. */
static void collect(unsigned long *table, unsigned int level, unsigned long nr,
		    struct page **pages, unsigned int *nr_pages)
{
	unsigned long i;

	for (i = 0; level && i < nr; i++) {
		if (!table[i] || table[i] & _PAGE_LEAF || *nr_pages == MAX_TABLES)
			continue;
		pages[*nr_pages] = virt_to_page(table_of(table[i]));
		get_page(pages[(*nr_pages)++]);
		collect(table_of(table[i]), level - 1, TABLE, pages, nr_pages);
	}
}

static void frees_every_table(struct kunit *test)
{
	struct page *pages[MAX_TABLES];
	struct fixture *f = test->priv;
	unsigned int i, nr = 0, levels = f->gstage.pgd_levels;

	for (i = 0; i < 3; i++)
		map(test, f->gfn + i * TABLE, f->gfn + i * TABLE + 1);
	map(test, 0, 1);
	/* Empty or not, beside huge pages or not. */
	unmap(f, f->gfn, f->gfn + 2 * TABLE);
	map_huge(test, f->gfn + 3 * TABLE, 1);

	collect((unsigned long *)f->gstage.pgd, levels - 1,
		TABLE << kvm_riscv_gstage_pgd_xbits, pages, &nr);
	KUNIT_EXPECT_EQ(test, nr, 2 * (levels - 1) + 2);

	kvm_riscv_gstage_free_pgd(&f->gstage);
	f->gstage.pgd = NULL;
	for (i = 0; i < nr; i++) {
		KUNIT_EXPECT_EQ(test, page_count(pages[i]), 1);
		put_page(pages[i]);
	}
}

/* Sv39x4, Sv48x4 and Sv57x4. */
static const unsigned int formats[] = { 3, 4, 5 };

static void describe(const unsigned int *levels, char *name)
{
	snprintf(name, KUNIT_PARAM_DESC_SIZE, "%u levels", *levels);
}

KUNIT_ARRAY_PARAM(format, formats, describe);

static int gstage_init(struct kunit *test)
{
	struct fixture *f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);
	unsigned int levels = *(const unsigned int *)test->param_value;

	KUNIT_ASSERT_NOT_NULL(test, f);
	/* Too large for a stack, and for kmalloc() with some options. */
	f->kvm = kvzalloc_obj(*f->kvm);
	KUNIT_ASSERT_NOT_NULL(test, f->kvm);
	test->priv = f;

	rwlock_init(&f->kvm->mmu_lock);
	f->kvm->arch.pgd_split_page_cache.gfp_zero = __GFP_ZERO;
	f->kvm->arch.pgd_levels = levels;
	f->kvm->arch.pgd = (pgd_t *)__get_free_pages(GFP_KERNEL | __GFP_ZERO,
						     get_order(kvm_riscv_gstage_pgd_size));
	KUNIT_ASSERT_NOT_NULL(test, f->kvm->arch.pgd);
	kvm_riscv_gstage_init(&f->gstage, f->kvm);

	f->cache.gfp_zero = __GFP_ZERO;
	f->gfn = (TABLE + 1) << ((levels - 1) * LG2);
	return 0;
}

static void gstage_exit(struct kunit *test)
{
	struct fixture *f = test->priv;

	if (!f)
		return;

	if (f->gstage.pgd)
		kvm_riscv_gstage_free_pgd(&f->gstage);
	kvm_mmu_free_memory_cache(&f->cache);
	kvm_mmu_free_memory_cache(&f->kvm->arch.pgd_split_page_cache);
	kvfree(f->kvm);
}

static struct kunit_case gstage_cases[] = {
	KUNIT_CASE_PARAM(unmaps_the_range, format_gen_params),
	KUNIT_CASE_PARAM(unmaps_the_last_page, format_gen_params),
	KUNIT_CASE_PARAM(hints_come_and_go, format_gen_params),
	KUNIT_CASE_PARAM(unmaps_and_splits_huge_pages, format_gen_params),
	KUNIT_CASE_PARAM(write_protects, format_gen_params),
	KUNIT_CASE_PARAM(ages, format_gen_params),
	KUNIT_CASE_PARAM(makes_room, format_gen_params),
	KUNIT_CASE_PARAM(frees_every_table, format_gen_params),
	{}
};

static struct kunit_suite gstage_suite = {
	.name = "kvm_riscv_gstage",
	.init = gstage_init,
	.exit = gstage_exit,
	.test_cases = gstage_cases,
};

kunit_test_suite(gstage_suite);
