// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for what prefault does to a stage-2 page table.
 *
 * The page tables are real ones, though of no VM. What the code under test asks
 * for beyond them is counted.
 */
#include <kunit/test.h>

#include <linux/kvm_host.h>
#include <linux/kvm_prefault.h>

#include <asm/kvm_mmu.h>
#include <asm/kvm_pgtable.h>

#define IPA_BITS	40
#define WINDOW		(3UL << PMD_SHIFT)
#define NR		8
#define RWX		KVM_PGTABLE_PROT_RWX
#define AF		KVM_PTE_LEAF_ATTR_LO_S2_AF

static unsigned int nr_cmos;

static void *fake_zalloc_page(void *arg)
{
	return (void *)get_zeroed_page(GFP_KERNEL);
}

static void *fake_zalloc_pages_exact(size_t size)
{
	return alloc_pages_exact(size, GFP_KERNEL | __GFP_ZERO);
}

static void fake_free_unlinked_table(void *addr, s8 level)
{
	free_page((unsigned long)addr);
}

static void fake_get_page(void *addr)
{
	get_page(virt_to_page(addr));
}

static void fake_put_page(void *addr)
{
	put_page(virt_to_page(addr));
}

static int fake_page_count(void *addr)
{
	return page_count(virt_to_page(addr));
}

static void *fake_phys_to_virt(phys_addr_t phys)
{
	return __va(phys);
}

static phys_addr_t fake_virt_to_phys(void *addr)
{
	return __pa(addr);
}

static void fake_cmo(void *addr, size_t size)
{
	nr_cmos++;
}

static struct kvm_pgtable_mm_ops fake_mm_ops = {
	.zalloc_page		= fake_zalloc_page,
	.zalloc_pages_exact	= fake_zalloc_pages_exact,
	.free_pages_exact	= free_pages_exact,
	.free_unlinked_table	= fake_free_unlinked_table,
	.get_page		= fake_get_page,
	.put_page		= fake_put_page,
	.page_count		= fake_page_count,
	.phys_to_virt		= fake_phys_to_virt,
	.virt_to_phys		= fake_virt_to_phys,
	.dcache_clean_inval_poc	= fake_cmo,
	.icache_inval_pou	= fake_cmo,
};

struct fixture {
	struct kvm_s2_mmu mmu;
	struct kvm_pgtable pgt;
	struct kvm_prefault_batch batch;
	struct page *page[NR];
};

static int find_entry(const struct kvm_pgtable_visit_ctx *ctx,
		      enum kvm_pgtable_walk_flags visit)
{
	kvm_pte_t **ptep = ctx->arg;

	*ptep = ctx->ptep;
	return 0;
}

static kvm_pte_t *entry(struct fixture *f, u64 addr)
{
	kvm_pte_t *ptep = NULL;
	struct kvm_pgtable_walker walker = {
		.cb	= find_entry,
		.arg	= &ptep,
		.flags	= KVM_PGTABLE_WALK_LEAF,
	};

	kvm_pgtable_walk(&f->pgt, addr, PAGE_SIZE, &walker);
	return ptep;
}

static kvm_pte_t *page_entry(struct fixture *f, unsigned int i)
{
	return entry(f, WINDOW + i * PAGE_SIZE);
}

static kvm_pte_t *last_level(struct fixture *f, u64 addr)
{
	guard(rcu)();
	return kvm_pgtable_stage2_last_level(&f->pgt, addr);
}

static int map_page(struct kunit *test, unsigned int i, phys_addr_t phys)
{
	struct fixture *f = test->priv;

	return kvm_pgtable_stage2_map(&f->pgt, WINDOW + i * PAGE_SIZE, PAGE_SIZE,
				      phys, RWX, test, KVM_PGTABLE_WALK_SHARED);
}

static int annotate_page(struct kunit *test, unsigned int i)
{
	struct fixture *f = test->priv;

	return kvm_pgtable_stage2_annotate(&f->pgt, WINDOW + i * PAGE_SIZE,
					   PAGE_SIZE, test,
					   KVM_HOST_INVALID_PTE_TYPE_DONATION, 2);
}

static unsigned int fill(struct fixture *f, enum kvm_pgtable_prot prot, bool old)
{
	guard(rcu)();
	f->batch.mapped = 0;
	kvm_pgtable_stage2_fill(&f->pgt, WINDOW + f->batch.index[0] * PAGE_SIZE,
				&f->batch, prot, old);
	return f->batch.mapped;
}

/* Page NR of the window is mapped, so that there is a table. */
static void fill_empty(struct kunit *test)
{
	struct fixture *f = test->priv;
	unsigned int i, cmos;
	kvm_pte_t *table;
	int count;

	KUNIT_ASSERT_EQ(test, map_page(test, NR, 0), 0);
	table = page_entry(f, NR);
	KUNIT_EXPECT_PTR_EQ(test, last_level(f, WINDOW), table - NR);
	KUNIT_EXPECT_PTR_EQ(test, last_level(f, WINDOW + NR * PAGE_SIZE), table);
	count = page_count(virt_to_page(table));
	cmos = nr_cmos;

	KUNIT_EXPECT_EQ(test, fill(f, RWX, true), NR);
	KUNIT_EXPECT_EQ(test, page_count(virt_to_page(table)), count + NR);
	KUNIT_EXPECT_EQ(test, nr_cmos, cmos);

	for (i = 0; i < NR; i++) {
		kvm_pte_t pte = *page_entry(f, i);

		KUNIT_EXPECT_TRUE(test, kvm_pte_valid(pte));
		KUNIT_EXPECT_EQ(test, kvm_pte_to_phys(pte),
				page_to_phys(f->page[i]));
		KUNIT_EXPECT_EQ(test, kvm_pgtable_stage2_pte_prot(pte), RWX);
		KUNIT_EXPECT_EQ(test, pte & AF, 0);
	}

	/* Once more: everything is there. */
	KUNIT_EXPECT_EQ(test, fill(f, RWX, true), 0);
	KUNIT_EXPECT_EQ(test, page_count(virt_to_page(table)), count + NR);
}

static void fill_young_and_readonly(struct kunit *test)
{
	struct fixture *f = test->priv;
	kvm_pte_t pte;

	KUNIT_ASSERT_EQ(test, map_page(test, NR, 0), 0);
	KUNIT_EXPECT_EQ(test, fill(f, KVM_PGTABLE_PROT_R, false), NR);

	pte = *page_entry(f, 0);
	KUNIT_EXPECT_EQ(test, kvm_pgtable_stage2_pte_prot(pte), KVM_PGTABLE_PROT_R);
	KUNIT_EXPECT_NE(test, pte & AF, 0);
}

/* What is not zero stays what it is: valid, locked, annotated. */
static void fill_between(struct kunit *test)
{
	struct fixture *f = test->priv;
	kvm_pte_t valid, annotated, locked;
	kvm_pte_t *table;
	int count;

	KUNIT_ASSERT_EQ(test, map_page(test, 1, SZ_1G), 0);
	KUNIT_ASSERT_EQ(test, annotate_page(test, 3), 0);
	locked = FIELD_PREP(KVM_INVALID_PTE_TYPE_MASK, KVM_INVALID_PTE_TYPE_LOCKED);
	WRITE_ONCE(*page_entry(f, 5), locked);

	valid = *page_entry(f, 1);
	annotated = *page_entry(f, 3);
	KUNIT_ASSERT_NE(test, annotated, 0);
	table = page_entry(f, 0);
	count = page_count(virt_to_page(table));

	KUNIT_EXPECT_EQ(test, fill(f, RWX, false), NR - 3);
	KUNIT_EXPECT_EQ(test, page_count(virt_to_page(table)), count + NR - 3);
	KUNIT_EXPECT_EQ(test, *page_entry(f, 1), valid);
	KUNIT_EXPECT_EQ(test, *page_entry(f, 3), annotated);
	KUNIT_EXPECT_EQ(test, *page_entry(f, 5), locked);

	WRITE_ONCE(*page_entry(f, 5), 0);
}

/* A batch need not start with the window, nor be without gaps. */
static void fill_sparse(struct kunit *test)
{
	struct fixture *f = test->priv;
	unsigned int i;

	KUNIT_ASSERT_EQ(test, map_page(test, 1, 0), 0);
	for (i = 0; i < NR; i++)
		f->batch.index[i] = 3 + 2 * i;

	KUNIT_EXPECT_EQ(test, fill(f, RWX, false), NR);
	for (i = 0; i < NR; i++) {
		KUNIT_EXPECT_EQ(test, kvm_pte_to_phys(*page_entry(f, 3 + 2 * i)),
				page_to_phys(f->page[i]));
		KUNIT_EXPECT_EQ(test, *page_entry(f, 4 + 2 * i), 0);
	}
	KUNIT_EXPECT_EQ(test, *page_entry(f, 0), 0);
}

/* Neither is a table made nor a block broken. */
static void fill_without_table(struct kunit *test)
{
	struct fixture *f = test->priv;
	kvm_pte_t block;

	KUNIT_EXPECT_NULL(test, last_level(f, WINDOW));
	KUNIT_EXPECT_EQ(test, fill(f, RWX, true), 0);
	KUNIT_EXPECT_EQ(test, *entry(f, WINDOW), 0);

	KUNIT_ASSERT_EQ(test, kvm_pgtable_stage2_map(&f->pgt, WINDOW, PMD_SIZE, 0,
						     RWX, test, 0), 0);
	block = *entry(f, WINDOW);
	KUNIT_EXPECT_NULL(test, last_level(f, WINDOW));
	KUNIT_EXPECT_EQ(test, fill(f, RWX, true), 0);
	KUNIT_EXPECT_EQ(test, *entry(f, WINDOW), block);
}

/* The second page of a table is mapped as the first one was that made the table. */
static void map_without_walk(struct kunit *test)
{
	struct fixture *f = test->priv;
	unsigned int cmos, of_walk;
	kvm_pte_t *table, first;
	int count;

	cmos = nr_cmos;
	KUNIT_ASSERT_EQ(test, map_page(test, 0, page_to_phys(f->page[0])), 0);
	of_walk = nr_cmos - cmos;
	table = page_entry(f, 0);
	first = *table;
	count = page_count(virt_to_page(table));

	cmos = nr_cmos;
	KUNIT_EXPECT_EQ(test, map_page(test, 1, page_to_phys(f->page[1])), 0);
	KUNIT_EXPECT_EQ(test, nr_cmos - cmos, of_walk);
	KUNIT_EXPECT_EQ(test, page_count(virt_to_page(table)), count + 1);
	KUNIT_EXPECT_EQ(test, kvm_pte_to_phys(*page_entry(f, 1)),
			page_to_phys(f->page[1]));
	KUNIT_EXPECT_EQ(test, *page_entry(f, 1) ^ first,
			page_to_phys(f->page[1]) ^ page_to_phys(f->page[0]));
	KUNIT_EXPECT_EQ(test, *table, first);
}

/* What somebody else has put there is dealt with by the walk, or stays. */
static void map_over_others(struct kunit *test)
{
	struct fixture *f = test->priv;
	kvm_pte_t locked;

	locked = FIELD_PREP(KVM_INVALID_PTE_TYPE_MASK, KVM_INVALID_PTE_TYPE_LOCKED);
	KUNIT_ASSERT_EQ(test, map_page(test, NR, 0), 0);
	WRITE_ONCE(*page_entry(f, 5), locked);

	KUNIT_EXPECT_EQ(test, map_page(test, 5, SZ_1G), -EAGAIN);
	KUNIT_EXPECT_EQ(test, *page_entry(f, 5), locked);

	WRITE_ONCE(*page_entry(f, 5), 0);
	KUNIT_EXPECT_EQ(test, map_page(test, 5, SZ_1G), 0);

	/* Beyond what the page tables can map. */
	KUNIT_EXPECT_EQ(test, kvm_pgtable_stage2_map(&f->pgt, BIT(IPA_BITS) + WINDOW,
						     PAGE_SIZE, SZ_1G, RWX, test,
						     KVM_PGTABLE_WALK_SHARED),
			-ERANGE);
}

/* A fault that loses against a prefault, or against ageing, changes nothing. */
static void map_over_old(struct kunit *test)
{
	struct fixture *f = test->priv;
	kvm_pte_t pte;

	KUNIT_ASSERT_EQ(test, map_page(test, NR, 0), 0);
	KUNIT_ASSERT_EQ(test, fill(f, RWX, true), NR);

	pte = *page_entry(f, 2);
	KUNIT_EXPECT_EQ(test, map_page(test, 2, page_to_phys(f->page[2])),
			-EAGAIN);
	KUNIT_EXPECT_EQ(test, *page_entry(f, 2), pte);
}

/* KVM_PRE_FAULT_MEMORY maps what is missing, and only that. */
static void map_keep_valid(struct kunit *test)
{
	enum kvm_pgtable_walk_flags flags = KVM_PGTABLE_WALK_KEEP_VALID;
	struct fixture *f = test->priv;
	kvm_pte_t block;

	KUNIT_ASSERT_EQ(test, kvm_pgtable_stage2_map(&f->pgt, WINDOW, PMD_SIZE, 0,
						     RWX, test, flags), 0);
	block = *entry(f, WINDOW);
	KUNIT_EXPECT_EQ(test, kvm_pgtable_stage2_map(&f->pgt, WINDOW, PAGE_SIZE,
						     SZ_1G, RWX, test, flags),
			-EEXIST);
	KUNIT_EXPECT_EQ(test, *entry(f, WINDOW), block);
}

static int pgtable_test_init(struct kunit *test)
{
	struct fixture *f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);
	unsigned int i;
	int ret;

	KUNIT_ASSERT_NOT_NULL(test, f);
	f->mmu.vtcr = kvm_get_vtcr(read_sanitised_ftr_reg(SYS_ID_AA64MMFR0_EL1),
				   read_sanitised_ftr_reg(SYS_ID_AA64MMFR1_EL1),
				   IPA_BITS);
	f->mmu.pgt = &f->pgt;
	ret = kvm_pgtable_stage2_init(&f->pgt, &f->mmu, &fake_mm_ops);
	KUNIT_ASSERT_EQ(test, ret, 0);

	f->batch.nr = NR;
	for (i = 0; i < NR; i++) {
		f->batch.index[i] = i;
		f->page[i] = alloc_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, f->page[i]);
		f->batch.pfn[i] = page_to_pfn(f->page[i]);
	}

	test->priv = f;
	return 0;
}

static void pgtable_test_exit(struct kunit *test)
{
	struct fixture *f = test->priv;
	unsigned int i;

	if (!f)
		return;

	kvm_pgtable_stage2_destroy(&f->pgt);
	for (i = 0; i < NR; i++)
		__free_page(f->page[i]);
}

static struct kunit_case pgtable_test_cases[] = {
	KUNIT_CASE(fill_empty),
	KUNIT_CASE(fill_young_and_readonly),
	KUNIT_CASE(fill_between),
	KUNIT_CASE(fill_sparse),
	KUNIT_CASE(fill_without_table),
	KUNIT_CASE(map_without_walk),
	KUNIT_CASE(map_over_others),
	KUNIT_CASE(map_over_old),
	KUNIT_CASE(map_keep_valid),
	{}
};

static struct kunit_suite pgtable_test_suite = {
	.name		= "kvm_arm64_pgtable",
	.init		= pgtable_test_init,
	.exit		= pgtable_test_exit,
	.test_cases	= pgtable_test_cases,
};

kunit_test_suite(pgtable_test_suite);
