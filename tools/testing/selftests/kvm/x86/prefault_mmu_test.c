// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_CAP_AUTO_PREFAULT and the MMUs that an x86 vCPU may run on
 *
 * A vCPU without paging, one in SMM, and L2: with and without the TDP MMU, with
 * and without TDP.  Run it with kvm.tdp_mmu=0 and kvm_amd.npt=0 (kvm_intel.ept=0)
 * as well.
 */
#include <linux/bitmap.h>

#include "kvm_test_harness.h"
#include "prefault_util.h"
#include "processor.h"
#include "smm.h"
#include "svm_util.h"
#include "ucall_common.h"
#include "vmx.h"

#define FIXED		KVM_AUTO_PREFAULT_FIXED
#define WINDOW		((u64)PREFAULT_PAGES_MAX * PAGE_SIZE)

/*
 * The memory under test: two windows.  Code without paging has to reach it, so
 * it lies below 4G.
 */
#define MEM_SLOT	1
#define MEM_GPA		0xc0000000ull
#define MEM_PAGES	(2 * PREFAULT_PAGES_MAX)
#define MEM_SIZE	(MEM_PAGES * PAGE_SIZE)

/* What the shadow MMU maps around a fault if nothing was negotiated, in pages. */
#define SHADOW_PAGES	8

#define TIMEOUT		120

/* Where the guests without paging end. */
#define DONE_PORT	0xe

static struct kvm_vm *vm;
static void *mem;

static u32 pattern(u32 page)
{
	return (page + 1) * 0x9e3779b1u;
}

static u32 *mem_word(void *hva, u32 page)
{
	return hva + page * PAGE_SIZE;
}

static void *alloc_memory(u32 nr, u32 xor)
{
	void *hva = prefault_mmap(nr * PAGE_SIZE, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	u32 i;

	for (i = 0; i < nr; i++)
		*mem_word(hva, i) = pattern(i) ^ xor;
	return hva;
}

static void add_memory(u32 flags)
{
	mem = alloc_memory(MEM_PAGES, 0);
	vm_set_user_memory_region(vm, MEM_SLOT, flags, MEM_GPA, MEM_SIZE, mem);
}

static void free_vm(void)
{
	if (vm)
		kvm_vm_free(vm);
	vm = NULL;
}

static bool tdp_mmu_enabled(void)
{
	return kvm_is_tdp_enabled() && get_kvm_param_bool("tdp_mmu");
}

/* Pages of the memory under test that are dirty since the last call. */
static u32 get_dirty(unsigned long *bitmap)
{
	u32 i, count = 0;

	kvm_vm_get_dirty_log(vm, MEM_SLOT, bitmap);
	for (i = 0; i < MEM_PAGES; i++)
		count += test_bit(i, bitmap);
	return count;
}

/*
 * A vCPU without paging: CR0.PG is clear, segments are flat.  This is what the
 * code below is started with:
 *
 *   ESI  first address	    EDX  distance to the next one	ECX  how many
 *   EDI  where to put what is loaded				EBX  what to store
 */
extern char flat_load[], flat_store[], flat_end[], smi_start[], smi_end[];

asm(".pushsection .rodata\n\t"
	".code32\n\t"
	"flat_load:\n\t"
	"movl (%esi), %eax\n\t"
	"movl %eax, (%edi)\n\t"
	"addl %edx, %esi\n\t"
	"addl $4, %edi\n\t"
	"decl %ecx\n\t"
	"jnz flat_load\n\t"
	"outb %al, $" __stringify(DONE_PORT) "\n\t"
	"flat_store:\n\t"
	"movl %ebx, (%esi)\n\t"
	"addl %edx, %esi\n\t"
	"decl %ecx\n\t"
	"jnz flat_store\n\t"
	"outb %al, $" __stringify(DONE_PORT) "\n\t"
	"flat_end:\n\t"
	".code64\n\t"
	".popsection");

static struct flat {
	struct kvm_vcpu *vcpu;
	gpa_t code_gpa;
	gpa_t values_gpa;
	u32 *values;
} flat;

static void flat_segment(struct kvm_segment *seg, u16 selector, u8 type)
{
	*seg = (struct kvm_segment) {
		.limit = 0xffffffff,
		.selector = selector,
		.type = type,
		.present = 1,
		.db = 1,
		.s = 1,
		.g = 1,
	};
}

static void flat_add_vcpu(u32 id)
{
	struct kvm_sregs sregs;
	gva_t code, values;

	code = vm_alloc_page(vm);
	memcpy(addr_gva2hva(vm, code), flat_load, flat_end - flat_load);
	values = vm_alloc(vm, MEM_PAGES * sizeof(u32), KVM_UTIL_MIN_VADDR);

	flat.code_gpa = addr_gva2gpa(vm, code);
	flat.values_gpa = addr_gva2gpa(vm, values);
	flat.values = addr_gva2hva(vm, values);

	flat.vcpu = vm_vcpu_add(vm, id, NULL);
	vcpu_sregs_get(flat.vcpu, &sregs);
	sregs.cr0 = X86_CR0_PE | X86_CR0_NE;
	sregs.cr3 = 0;
	sregs.cr4 = 0;
	sregs.efer = 0;
	flat_segment(&sregs.cs, 0x8, 0xb);
	flat_segment(&sregs.ds, 0x10, 3);
	flat_segment(&sregs.es, 0x10, 3);
	flat_segment(&sregs.fs, 0x10, 3);
	flat_segment(&sregs.gs, 0x10, 3);
	flat_segment(&sregs.ss, 0x10, 3);
	vcpu_sregs_set(flat.vcpu, &sregs);
}

static void flat_run(char *code, gpa_t first, u32 step, u32 nr, u32 value)
{
	struct kvm_regs regs = {
		.rip = flat.code_gpa + (code - flat_load),
		.rflags = 0x2,
		.rsi = first,
		.rdi = flat.values_gpa,
		.rdx = step,
		.rcx = nr,
		.rbx = value,
	};

	vcpu_regs_set(flat.vcpu, &regs);
	vcpu_run(flat.vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(flat.vcpu, KVM_EXIT_IO);
	TEST_ASSERT(flat.vcpu->run->io.port == DONE_PORT, "Unexpected port %x",
		    flat.vcpu->run->io.port);
}

/* Runs @code on pages [first, first + nr); returns what was counted meanwhile. */
static struct prefault_stats flat_run_pages(char *code, u32 first, u32 nr, u32 value)
{
	struct prefault_stats start, end, sum = {};
	u32 i;

	/* Code, and where values go, are not to be counted. */
	for (i = 0; i < MEM_PAGES * sizeof(u32) / PAGE_SIZE; i++)
		flat_run(flat_store, flat.values_gpa + i * PAGE_SIZE, 4, 1, 0);

	prefault_read_stats(flat.vcpu, &start);
	flat_run(code, MEM_GPA + first * PAGE_SIZE, PAGE_SIZE, nr, value);
	prefault_read_stats(flat.vcpu, &end);
	prefault_add_stats(&sum, &start, &end);
	return sum;
}

static struct prefault_stats flat_load_pages(u32 first, u32 nr)
{
	struct prefault_stats stats = flat_run_pages(flat_load, first, nr, 0);
	u32 i;

	for (i = 0; i < nr; i++)
		TEST_ASSERT(flat.values[i] == *mem_word(mem, first + i),
			    "Page %u: the guest should read %x, not %x", first + i,
			    *mem_word(mem, first + i), flat.values[i]);
	return stats;
}

static void flat_create(u32 flags)
{
	vm = vm_create(1);
	flat_add_vcpu(0);
	add_memory(flags);
}

FIXTURE(prefault_flat) { int unused; };
FIXTURE_SETUP(prefault_flat) { }
FIXTURE_TEARDOWN(prefault_flat) { free_vm(); }

/* Takes everything from the guest, lets it load @page, and counts. */
static void flat_expect_window(u32 page, u64 want)
{
	struct prefault_stats stats;
	int tries;

	for (tries = 0; tries < 5; tries++) {
		prefault_unmap_guest(mem, MEM_SIZE);
		stats = flat_load_pages(page, 1);
		TEST_ASSERT(stats.windows == !!want && stats.mapped <= want,
			    "Page %u: expected %d windows with %lu other pages, got %lu with %lu",
			    page, !!want, want, stats.windows, stats.mapped);
		if (stats.mapped == want)
			return;
	}
	TEST_FAIL("The window of page %u should map %lu pages, mapped %lu", page,
		  want, stats.mapped);
}

/* Nothing was negotiated: what KVM has always done. */
TEST_F_TIMEOUT(prefault_flat, default_window, TIMEOUT)
{
	const u32 nr = 10 * SHADOW_PAGES;
	u64 faults = tdp_mmu_enabled() ? nr : nr / SHADOW_PAGES;
	struct prefault_stats stats;

	if (get_kvm_param_integer("auto_prefault_size"))
		SKIP(return, "kvm.auto_prefault_size is set");

	flat_create(0);
	flat_expect_window(3, tdp_mmu_enabled() ? 0 : SHADOW_PAGES - 1);
	flat_expect_window(MEM_PAGES - 1, tdp_mmu_enabled() ? 0 : SHADOW_PAGES - 1);

	prefault_unmap_guest(mem, MEM_SIZE);
	stats = flat_load_pages(0, nr);
	TEST_ASSERT(stats.pf_taken == faults, "%u pages should take %lu faults, took %lu",
		    nr, faults, stats.pf_taken);

	/* Off is off. */
	vm_set_prefault(vm, 0, 0);
	prefault_unmap_guest(mem, MEM_SIZE);
	stats = flat_load_pages(0, nr);
	TEST_ASSERT(stats.pf_taken == nr && !stats.windows,
		    "%u pages should take a fault each and no window, took %lu and %lu",
		    nr, stats.pf_taken, stats.windows);
}

TEST_F_TIMEOUT(prefault_flat, window, TIMEOUT)
{
	struct prefault_stats stats;
	u32 i, nr;

	flat_create(0);
	for (nr = 2; nr <= PREFAULT_PAGES_MAX; nr *= 2) {
		vm_set_prefault(vm, nr * PAGE_SIZE, FIXED);
		flat_expect_window(PREFAULT_PAGES_MAX, nr - 1);
		flat_expect_window(PREFAULT_PAGES_MAX - 1, nr - 1);
	}

	/* Mapped is mapped, for stores too, and the next table is not. */
	flat_expect_window(100, PREFAULT_PAGES_MAX - 1);
	stats = flat_load_pages(0, PREFAULT_PAGES_MAX);
	TEST_ASSERT(!stats.pf_taken, "All should be mapped, took %lu faults", stats.pf_taken);
	stats = flat_run_pages(flat_store, 0, PREFAULT_PAGES_MAX, 42);
	TEST_ASSERT(!stats.pf_taken, "All should be writable, took %lu faults", stats.pf_taken);
	for (i = 0; i < PREFAULT_PAGES_MAX; i++)
		TEST_ASSERT(*mem_word(mem, i) == 42, "Page %u: the store is lost", i);
	stats = flat_load_pages(PREFAULT_PAGES_MAX, PREFAULT_PAGES_MAX);
	TEST_ASSERT(stats.windows == 1, "The second table should take one window, took %lu",
		    stats.windows);

	/* The host takes pages away: they are not seen again. */
	for (i = 0; i < MEM_PAGES; i += 3)
		kvm_madvise(mem_word(mem, i), PAGE_SIZE, MADV_DONTNEED);
	flat_run_pages(flat_load, 0, MEM_PAGES, 0);
	for (i = 0; i < MEM_PAGES; i += 3)
		TEST_ASSERT(!flat.values[i], "Page %u was discarded, the guest reads %x", i,
			    flat.values[i]);

	/* What is not there stays away. */
	kvm_madvise(mem, MEM_SIZE, MADV_DONTNEED);
	for (i = 0; i < MEM_PAGES; i += 2)
		*mem_word(mem, i) = pattern(i);
	flat_expect_window(0, PREFAULT_PAGES_MAX / 2 - 1);
	TEST_ASSERT(prefault_count_resident(mem, MEM_SIZE) == MEM_PAGES / 2,
		    "%u pages were resident, now %lu are", MEM_PAGES / 2,
		    prefault_count_resident(mem, MEM_SIZE));
}

/* Huge pages, too, are mapped together. */
TEST_F_TIMEOUT(prefault_flat, huge_pages, TIMEOUT)
{
	const u32 touched = PREFAULT_PAGES_MAX + 3;
	struct prefault_stats stats;

	if (!thp_configured())
		SKIP(return, "No transparent huge pages");

	flat_create(0);
	prefault_make_huge(mem, MEM_SIZE);
	vm_set_prefault(vm, WINDOW, FIXED);
	flat_expect_window(touched, 0);
	vm_set_prefault(vm, 2 * WINDOW, FIXED);
	flat_expect_window(touched, PREFAULT_PAGES_MAX);
	TEST_ASSERT(vm_get_stat(vm, pages_2m) == MEM_PAGES / PREFAULT_PAGES_MAX,
		    "%lu huge pages are mapped", vm_get_stat(vm, pages_2m));

	stats = flat_load_pages(0, MEM_PAGES);
	TEST_ASSERT(!stats.pf_taken, "All should be mapped, took %lu faults", stats.pf_taken);
	stats = flat_run_pages(flat_store, 0, MEM_PAGES, 42);
	TEST_ASSERT(!stats.pf_taken && *mem_word(mem, 0) == 42,
		    "All should be writable, took %lu faults", stats.pf_taken);
}

/* More vCPUs, hence more roots: a page that is mapped by several has an rmap each. */
TEST_F_TIMEOUT(prefault_flat, several_roots, TIMEOUT)
{
	struct flat first;

	vm = vm_create(2);
	flat_add_vcpu(0);
	first = flat;
	flat_add_vcpu(1);
	add_memory(0);
	vm_set_prefault(vm, WINDOW, FIXED);

	flat_load_pages(0, MEM_PAGES);
	flat = first;
	flat_load_pages(0, MEM_PAGES);
	flat_run_pages(flat_store, 0, MEM_PAGES, 43);
	prefault_unmap_guest(mem, MEM_SIZE);
	flat_load_pages(0, MEM_PAGES);
}

/* The windows leave the dirty log exact. */
TEST_F_TIMEOUT(prefault_flat, dirty_log, TIMEOUT)
{
	const u32 stores[] = { 0, 1, 100, PREFAULT_PAGES_MAX - 1, PREFAULT_PAGES_MAX };
	DECLARE_BITMAP(bitmap, MEM_PAGES);
	struct prefault_stats stats;
	u32 i, count;

	flat_create(KVM_MEM_LOG_DIRTY_PAGES);
	vm_set_prefault(vm, WINDOW, FIXED);

	/* The pages of the faults themselves are reported, as they always were. */
	flat_expect_window(7, PREFAULT_PAGES_MAX - 1);
	stats = flat_load_pages(0, MEM_PAGES);
	TEST_ASSERT(stats.windows == 1, "Expected one more window, got %lu", stats.windows);
	count = get_dirty(bitmap);
	TEST_ASSERT(count <= 2, "Nothing was written, but %u pages are dirty", count);
	TEST_ASSERT(!count || (test_bit(7, bitmap) && count == 1) ||
		    test_bit(PREFAULT_PAGES_MAX, bitmap),
		    "A page is dirty that was not even touched");

	for (i = 0; i < ARRAY_SIZE(stores); i++) {
		stats = flat_run_pages(flat_store, stores[i], 1, i);
		TEST_ASSERT(stats.pf_taken == 1 && stats.pf_fast == 1 && !stats.windows,
			    "The first store to page %u should take one fast fault, took %lu, %lu fast",
			    stores[i], stats.pf_taken, stats.pf_fast);
		count = get_dirty(bitmap);
		TEST_ASSERT(count == 1 && test_bit(stores[i], bitmap),
			    "Page %u should be dirty and no other, %u are", stores[i], count);
		TEST_ASSERT(*mem_word(mem, stores[i]) == i, "The store to page %u is lost",
			    stores[i]);
	}

	flat_run_pages(flat_store, 10, 300, 1);
	count = get_dirty(bitmap);
	TEST_ASSERT(count == 300 && test_bit(10, bitmap) && test_bit(309, bitmap),
		    "300 pages were written, %u are dirty", count);
}

/*
 * Write-tracked memory: page tables that KVM shadows.  A window must not make
 * them writable behind KVM's back.
 */

/* Two pages, one of which the guest sees at TRACK_GVA. */
#define TRACK_GVA	0x40000000ull
#define OTHER_GVA	(TRACK_GVA + 2 * WINDOW)

static void guest_track(void)
{
	for (;;) {
		GUEST_SYNC(READ_ONCE(*(u32 *)TRACK_GVA));
		set_cr3(get_cr3());
	}
}

/* What a guest sends at its next stop. */
static u64 next_sync(struct kvm_vcpu *vcpu)
{
	struct ucall uc;

	vcpu_run(vcpu);
	switch (get_ucall(vcpu, &uc)) {
	case UCALL_SYNC:
		return uc.args[1];
	case UCALL_DONE:
		return -1ull;
	case UCALL_ABORT:
		REPORT_GUEST_ASSERT(uc);
		break;
	default:
		TEST_FAIL("Unexpected exit: %s", exit_reason_str(vcpu->run->exit_reason));
	}
	return 0;
}

static void expect_sync(struct kvm_vcpu *vcpu, u64 want)
{
	u64 got = next_sync(vcpu);

	TEST_ASSERT(got == want, "The guest should report %lx, not %lx", want, got);
}

/* The guest physical address of the entry for @gva at @level. */
static gpa_t entry_gpa(struct kvm_mmu *mmu, gva_t gva, int level)
{
	gpa_t table = mmu->pgd;
	int i;

	for (i = mmu->pgtable_levels; ; i--) {
		table += ((gva >> (PAGE_SHIFT + 9 * (i - 1))) & 511) * sizeof(u64);
		if (i == level)
			return table;
		table = *(u64 *)addr_gpa2hva(vm, table) & PHYSICAL_PAGE_MASK;
	}
}

/* All of the first memslot: code, stacks, page tables. */
static void unmap_first_slot(void)
{
	struct userspace_mem_region *region = memslot2region(vm, 0);

	prefault_unmap_guest(region->host_mem, region->region.memory_size);
}

FIXTURE(prefault_track) { int unused; };
FIXTURE_SETUP(prefault_track) { }
FIXTURE_TEARDOWN(prefault_track) { free_vm(); }

FIXTURE_VARIANT(prefault_track) {
	int level;
};

FIXTURE_VARIANT_ADD(prefault_track, pte) { .level = PG_LEVEL_4K };
FIXTURE_VARIANT_ADD(prefault_track, pde) { .level = PG_LEVEL_2M };

/*
 * A vCPU without paging prefaults the page tables of another one and writes to
 * them.  If KVM shadows these, it has to see that.
 */
TEST_F_TIMEOUT(prefault_track, guest_tables, TIMEOUT)
{
	struct prefault_stats start, end;
	gpa_t to, from, neighbour;
	struct kvm_vcpu *vcpu;
	u32 value;
	int i;

	vm = vm_create(2);
	flat_add_vcpu(1);
	vcpu = vm_vcpu_add(vm, 0, guest_track);
	kvm_arch_vm_finalize_vcpus(vm);
	add_memory(0);
	virt_map(vm, TRACK_GVA, MEM_GPA, 1);
	virt_map(vm, OTHER_GVA, MEM_GPA + PAGE_SIZE, 1);
	to = entry_gpa(&vm->mmu, TRACK_GVA, variant->level);
	from = entry_gpa(&vm->mmu, OTHER_GVA, variant->level);
	vm_set_prefault(vm, WINDOW, FIXED);

	/* KVM shadows a table when it is used, and tracks it from then on. */
	for (i = 0; i < 4; i++)
		expect_sync(vcpu, pattern(0));

	/* Touched is another page of the window, at its start or else its end. */
	neighbour = to & ~(WINDOW - 1);
	if (to - neighbour < PAGE_SIZE)
		neighbour += WINDOW - PAGE_SIZE;
	unmap_first_slot();
	prefault_read_stats(flat.vcpu, &start);
	flat_run(flat_load, neighbour, 4, 1, 0);
	prefault_read_stats(flat.vcpu, &end);
	TEST_ASSERT(end.mapped > start.mapped, "The page tables should be prefaulted");

	flat_run(flat_load, from, 4, 1, 0);
	value = flat.values[0];
	flat_run(flat_store, to, 4, 1, value);

	expect_sync(vcpu, pattern(1));
}

/*
 * L2.
 */

enum l2_op {
	L2_NOTHING,
	L2_LOAD,
	L2_STORE,
};

/* Shared by the host, L1 and L2. */
static struct l2 {
	enum l2_op op;
	u32 nr;
	u32 value;
	u32 list[MEM_PAGES];
	u32 values[MEM_PAGES];

	/* L1 copies a page table entry if it is told to. */
	bool copy;
	u64 *to;
	u64 *from;
} l2;

/* Where L1 has the two page table entries. */
#define ENTRIES_GVA	0x80000000ull

static void l2_code(void)
{
	u32 i;

	for (;;) {
		for (i = 0; i < l2.nr; i++) {
			if (l2.op == L2_LOAD)
				l2.values[i] = READ_ONCE(*mem_word((void *)MEM_GPA, l2.list[i]));
			else if (l2.op == L2_STORE)
				WRITE_ONCE(*mem_word((void *)MEM_GPA, l2.list[i]), l2.value);
		}
		GUEST_SYNC(0);
	}
}

static void l1_code(struct svm_test_data *svm)
{
	u32 i;

	/* What L1 has mapped already has two mappings when L2 has it, too. */
	for (i = 0; i < MEM_PAGES; i++)
		READ_ONCE(*mem_word((void *)MEM_GPA, i));

	generic_svm_setup(svm, l2_code);
	run_guest(svm->vmcb, svm->vmcb_gpa);
	GUEST_FAIL("L2 should not exit to L1: %lx", (u64)svm->vmcb->control.exit_code);
}

static void l2_track_code(void)
{
	for (;;) {
		l2.values[0] = READ_ONCE(*(u32 *)TRACK_GVA);
		vmmcall();
	}
}

static void l1_track_code(struct svm_test_data *svm)
{
	generic_svm_setup(svm, l2_track_code);
	svm->vmcb->control.tlb_ctl = TLB_CONTROL_FLUSH_ALL_ASID;

	for (;;) {
		run_guest(svm->vmcb, svm->vmcb_gpa);
		GUEST_ASSERT_EQ(svm->vmcb->control.exit_code, SVM_EXIT_VMMCALL);
		svm->vmcb->save.rip += 3;
		GUEST_SYNC(l2.values[0]);
		if (l2.copy)
			WRITE_ONCE(*l2.to, READ_ONCE(*l2.from));
	}
}

static struct kvm_vcpu *create_nested_vm(void *l1, bool npt, u32 flags)
{
	struct kvm_vcpu *vcpu;
	gva_t svm;

	vm = vm_create_with_one_vcpu(&vcpu, l1);
	if (npt)
		vm_enable_tdp(vm);
	vcpu_alloc_svm(vm, &svm);
	vcpu_args_set(vcpu, 1, svm);
	add_memory(flags);
	virt_map(vm, MEM_GPA, MEM_GPA, MEM_PAGES);
	return vcpu;
}

FIXTURE(prefault_nested) { int unused; };
FIXTURE_SETUP(prefault_nested) { }
FIXTURE_TEARDOWN(prefault_nested) { free_vm(); }

FIXTURE_VARIANT(prefault_nested) {
	/* L1 gives L2 nested page tables. */
	bool npt;
	u32 flags;
};

FIXTURE_VARIANT_ADD(prefault_nested, npt) { .npt = true };
FIXTURE_VARIANT_ADD(prefault_nested, npt_logged) {
	.npt = true, .flags = KVM_MEM_LOG_DIRTY_PAGES
};

FIXTURE_VARIANT_ADD(prefault_nested, no_npt) { };
FIXTURE_VARIANT_ADD(prefault_nested, no_npt_logged) { .flags = KVM_MEM_LOG_DIRTY_PAGES };

static struct prefault_stats l2_run(struct kvm_vcpu *vcpu, enum l2_op op, u32 nr, u32 value)
{
	struct l2 *shared = addr_gva2hva(vm, (gva_t)&l2);
	struct prefault_stats start, end, sum = {};

	shared->op = op;
	shared->nr = nr;
	shared->value = value;
	prefault_read_stats(vcpu, &start);
	expect_sync(vcpu, 0);
	prefault_read_stats(vcpu, &end);
	prefault_add_stats(&sum, &start, &end);
	return sum;
}

/* All pages in order, for L2; with @npt L1 turns the order around. */
static struct prefault_stats l2_load_all(struct kvm_vcpu *vcpu, bool npt)
{
	struct l2 *shared = addr_gva2hva(vm, (gva_t)&l2);
	struct prefault_stats stats;
	u32 i, page;

	for (i = 0; i < MEM_PAGES; i++)
		shared->list[i] = i;
	stats = l2_run(vcpu, L2_LOAD, MEM_PAGES, 0);
	for (i = 0; i < MEM_PAGES; i++) {
		page = npt ? MEM_PAGES - 1 - i : i;
		TEST_ASSERT(shared->values[i] == pattern(page),
			    "Page %u of L2 is page %u, it should read %x, not %x", i, page,
			    pattern(page), shared->values[i]);
	}
	if (!npt && kvm_is_tdp_enabled())
		TEST_ASSERT(stats.mapped && stats.pf_taken < MEM_PAGES / 4,
			    "L2 without page tables of L1 should be served, took %lu faults",
			    stats.pf_taken);
	else
		TEST_ASSERT(!stats.windows && !stats.mapped && stats.pf_taken,
			    "Page tables of a guest should take no windows, took %lu with %lu pages",
			    stats.windows, stats.mapped);
	return stats;
}

/*
 * Only an MMU that is indexed by L1's gfns can be prefaulted.  With page tables
 * of L1, which turn the order of pages around here, neighbours are not neighbours.
 */
TEST_F_TIMEOUT(prefault_nested, l2, TIMEOUT)
{
	DECLARE_BITMAP(bitmap, MEM_PAGES);
	struct prefault_stats stats;
	struct kvm_vcpu *vcpu;
	struct l2 *shared;
	u32 i, page, count;

	if (!kvm_cpu_has(X86_FEATURE_SVM) || (variant->npt && !kvm_cpu_has_npt()))
		SKIP(return, "Needs nested SVM%s", variant->npt ? " with NPT" : "");

	vcpu = create_nested_vm(l1_code, variant->npt, variant->flags);
	if (variant->npt) {
		for (i = 0; i < MEM_PAGES; i++)
			tdp_map(vm, MEM_GPA + i * PAGE_SIZE,
				MEM_GPA + (MEM_PAGES - 1 - i) * PAGE_SIZE, PAGE_SIZE);
		tdp_identity_map_default_memslots(vm);
	}
	shared = addr_gva2hva(vm, (gva_t)&l2);
	memset(shared, 0, sizeof(*shared));
	vm_set_prefault(vm, WINDOW, FIXED);

	/* L2 starts, and touches what it needs itself. */
	l2_run(vcpu, L2_NOTHING, 0, 0);
	l2_load_all(vcpu, variant->npt);
	if (variant->flags)
		get_dirty(bitmap);

	prefault_unmap_guest(mem, MEM_SIZE);
	stats = l2_load_all(vcpu, variant->npt);
	if (!variant->flags)
		return;

	count = get_dirty(bitmap);
	TEST_ASSERT(count <= stats.windows,
		    "Nothing was written, but %u pages are dirty", count);
	for (i = 0; i < 4; i++) {
		shared->list[0] = 33 * i + 1;
		page = variant->npt ? MEM_PAGES - 1 - shared->list[0] : shared->list[0];
		l2_run(vcpu, L2_STORE, 1, 77 + i);
		count = get_dirty(bitmap);
		TEST_ASSERT(count == 1 && test_bit(page, bitmap),
			    "Page %u should be dirty and no other, %u are", page, count);
		TEST_ASSERT(*mem_word(mem, page) == 77 + i, "The store to page %u is lost",
			    page);
	}
}

/* L1 prefaults its page tables for L2, which KVM shadows, and writes to them. */
TEST_F_TIMEOUT(prefault_track, nested_tables, TIMEOUT)
{
	struct prefault_stats start, end;
	struct kvm_vcpu *vcpu;
	struct l2 *shared;
	gpa_t to, from;
	int i;

	if (!kvm_cpu_has(X86_FEATURE_SVM) || !kvm_cpu_has_npt())
		SKIP(return, "Needs nested SVM with NPT");

	vcpu = create_nested_vm(l1_track_code, true, 0);
	virt_map(vm, TRACK_GVA, TRACK_GVA, 1);
	tdp_map(vm, TRACK_GVA, MEM_GPA, PAGE_SIZE);
	tdp_map(vm, OTHER_GVA, MEM_GPA + PAGE_SIZE, PAGE_SIZE);
	to = entry_gpa(&vm->stage2_mmu, TRACK_GVA, variant->level);
	from = entry_gpa(&vm->stage2_mmu, OTHER_GVA, variant->level);
	virt_map(vm, ENTRIES_GVA, to & PAGE_MASK, 1);
	virt_map(vm, ENTRIES_GVA + PAGE_SIZE, from & PAGE_MASK, 1);
	tdp_identity_map_default_memslots(vm);

	shared = addr_gva2hva(vm, (gva_t)&l2);
	memset(shared, 0, sizeof(*shared));
	shared->to = (u64 *)(ENTRIES_GVA + (to & ~PAGE_MASK));
	shared->from = (u64 *)(ENTRIES_GVA + PAGE_SIZE + (from & ~PAGE_MASK));
	vm_set_prefault(vm, WINDOW, FIXED);

	for (i = 0; i < 4; i++)
		expect_sync(vcpu, pattern(0));

	/* L1 runs first: its faults map all of it again. */
	unmap_first_slot();
	prefault_read_stats(vcpu, &start);
	shared->copy = true;
	expect_sync(vcpu, pattern(1));
	prefault_read_stats(vcpu, &end);
	TEST_ASSERT(end.mapped > start.mapped, "The page tables should be prefaulted");
}

/*
 * SMM: memslots of its own, in part for the same gfns.
 */

#define SMRAM_GPA	0x1000000

/*
 * At the start of SMRAM: the first address that the handler loads from, how
 * many pages it goes through, and what was there.
 */
struct smm_area {
	u32 first;
	u32 nr;
	u32 values[MEM_PAGES];
};

/* The handler starts in 16-bit mode, with segments that hold 4G. */
asm(".pushsection .rodata\n\t"
	".code16\n\t"
	"smi_start:\n\t"
	"movl $" __stringify(SMRAM_GPA) ", %edi\n\t"
	"movl (%edi), %esi\n\t"
	"addl $4, %edi\n\t"
	"movl (%edi), %ecx\n\t"
	"1: addl $4, %edi\n\t"
	"movl (%esi), %eax\n\t"
	"movl %eax, (%edi)\n\t"
	"addl $0x1000, %esi\n\t"
	"decl %ecx\n\t"
	"jnz 1b\n\t"
	"outb %al, $" __stringify(DONE_PORT) "\n\t"
	"rsm\n\t"
	"smi_end:\n\t"
	".code64\n\t"
	".popsection");

static void guest_load(void)
{
	u32 i;

	for (;;) {
		for (i = 0; i < l2.nr; i++)
			l2.values[i] = READ_ONCE(*mem_word((void *)MEM_GPA, l2.list[i]));
		GUEST_SYNC(0);
	}
}

/* The pattern of SMM's memory is another one. */
#define SMM_XOR		0x5a5a5a5au

static struct prefault_stats run_smi(struct kvm_vcpu *vcpu, u32 first, u32 nr, u32 xor)
{
	struct smm_area *area = addr_gpa2hva(vm, SMRAM_GPA);
	struct prefault_stats start, end, sum = {};
	u32 i;

	area->first = MEM_GPA + first * PAGE_SIZE;
	area->nr = nr;
	inject_smi(vcpu);
	prefault_read_stats(vcpu, &start);
	vcpu_run(vcpu);
	prefault_read_stats(vcpu, &end);
	TEST_ASSERT(vcpu->run->exit_reason == KVM_EXIT_IO && vcpu->run->io.port == DONE_PORT,
		    "The handler of the SMI should have run");
	for (i = 0; i < nr; i++)
		TEST_ASSERT(area->values[i] == (pattern(first + i) ^ xor),
			    "Page %u: in SMM it should read %x, not %x", first + i,
			    pattern(first + i) ^ xor, area->values[i]);
	prefault_add_stats(&sum, &start, &end);
	return sum;
}

/* Everything outside of SMM. */
static void load_all(struct kvm_vcpu *vcpu, u32 xor)
{
	struct l2 *shared = addr_gva2hva(vm, (gva_t)&l2);
	u32 i;

	for (i = 0; i < MEM_PAGES; i++)
		shared->list[i] = i;
	shared->nr = MEM_PAGES;
	expect_sync(vcpu, 0);
	for (i = 0; i < MEM_PAGES; i++)
		TEST_ASSERT(shared->values[i] == (pattern(i) ^ xor),
			    "Page %u: outside of SMM it should read %x, not %x", i,
			    pattern(i) ^ xor, shared->values[i]);
}

/* A vCPU with SMRAM and a memslot for SMM, backed by @hva or by the usual memory. */
static struct kvm_vcpu *create_smm(void *hva)
{
	struct kvm_vcpu *vcpu;

	vm = vm_create_with_one_vcpu(&vcpu, guest_load);
	setup_smram(vm, vcpu, SMRAM_GPA, smi_start, smi_end - smi_start);
	add_memory(0);
	virt_map(vm, MEM_GPA, MEM_GPA, MEM_PAGES);
	vm_set_user_memory_region(vm, MEM_SLOT | 1 << 16 | 2, 0, MEM_GPA, MEM_SIZE,
				  hva ?: mem);
	((struct l2 *)addr_gva2hva(vm, (gva_t)&l2))->nr = 0;
	expect_sync(vcpu, 0);
	return vcpu;
}

FIXTURE(prefault_smm) { int unused; };
FIXTURE_SETUP(prefault_smm) { }
FIXTURE_TEARDOWN(prefault_smm) { free_vm(); }

TEST_F_TIMEOUT(prefault_smm, other_memslot, TIMEOUT)
{
	struct prefault_stats stats;
	struct kvm_vcpu *vcpu;
	void *smm_mem;
	u32 round;

	if (!kvm_has_cap(KVM_CAP_X86_SMM))
		SKIP(return, "No SMM");

	smm_mem = alloc_memory(MEM_PAGES, SMM_XOR);
	vcpu = create_smm(smm_mem);
	vm_set_prefault(vm, WINDOW, FIXED);

	for (round = 0; round < 3; round++) {
		stats = run_smi(vcpu, 0, MEM_PAGES, SMM_XOR);
		/* SMM runs without paging. */
		TEST_ASSERT(round || stats.mapped,
			    "Memory of SMM should have been prefaulted");

		load_all(vcpu, 0);
		if (round % 2)
			prefault_unmap_guest(mem, MEM_SIZE);
		else
			prefault_unmap_guest(smm_mem, MEM_SIZE);
	}
}

static void replace_memory(u32 xor)
{
	u32 i;

	kvm_madvise(mem, MEM_SIZE, MADV_DONTNEED);
	for (i = 0; i < MEM_PAGES; i++)
		*mem_word(mem, i) = pattern(i) ^ xor;
}

/*
 * The same memory inside and outside of SMM, each with page tables of its own, of
 * which one or the other is empty, and known to be, when all of it is replaced.
 */
TEST_F_TIMEOUT(prefault_smm, one_is_empty, TIMEOUT)
{
	struct kvm_vcpu *vcpu;
	u32 round, step = 0;

	if (!kvm_has_cap(KVM_CAP_X86_SMM))
		SKIP(return, "No SMM");

	vcpu = create_smm(NULL);
	load_all(vcpu, 0);
	for (round = 0; round < 4; round++) {
		replace_memory(++step);
		run_smi(vcpu, 0, MEM_PAGES, step);
		replace_memory(++step);
		run_smi(vcpu, 0, 1, step);
		replace_memory(++step);
		load_all(vcpu, step);
		replace_memory(++step);
		run_smi(vcpu, 0, 1, step);
	}
}

int main(int argc, char *argv[])
{
	TEST_REQUIRE(kvm_has_cap(KVM_CAP_AUTO_PREFAULT));
	return test_harness_run(argc, argv);
}
