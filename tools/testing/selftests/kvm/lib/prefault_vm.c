// SPDX-License-Identifier: GPL-2.0-only
/*
 * A VM for the tests of KVM_CAP_AUTO_PREFAULT.
 */
#include <pthread.h>
#include <sys/mman.h>

#include <asm/barrier.h>

#include "prefault_vm.h"
#include "processor.h"
#include "ucall_common.h"

/*
 * The guest.
 */

u64 pvm_pattern(u64 page)
{
	return (page + 1) * 0x9e3779b97f4a7c15ull;
}

u64 pvm_stored(u64 page, u64 value)
{
	return value ^ pvm_pattern(page);
}

static u64 *page_ptr(gva_t base, u64 page, u64 page_size)
{
	return (u64 *)(base + page * page_size);
}

static noinline void load(struct pvm_area *area, gva_t base, u32 *list,
			  u64 *values, u64 nr)
{
	u64 i;

	for (i = 0; i < nr; i++)
		values[i] = READ_ONCE(*page_ptr(base, list[i], area->page_size));
}

static noinline void store(struct pvm_area *area, gva_t base, u32 *list, u64 nr)
{
	u64 i;

	for (i = 0; i < nr; i++)
		WRITE_ONCE(*page_ptr(base, list[i], area->page_size),
			   pvm_stored(list[i], area->value));
}

static void warm_up(struct pvm_area *area)
{
	u64 i;

	prefault_touch_tables(&area->tables);
	for (i = 0; i < sizeof(*area) / sizeof(u64); i += 64)
		READ_ONCE(((u64 *)area)[i]);
	for (i = 0; i < PVM_SPAN; i++)
		WRITE_ONCE(area->values[i], 0);

	load(area, (gva_t)&area->scratch, &area->zero, &area->scratch, 1);
	store(area, (gva_t)&area->scratch, &area->zero, 1);
}

static u64 expected_value(enum pvm_rule rule, u64 page, u64 seq)
{
	bool second = (seq / 2) & 1;

	switch (rule) {
	case PVM_SEQ:
		return seq;
	case PVM_PATTERN:
		return pvm_pattern(page);
	case PVM_MOVED:
		return pvm_pattern(page - second);
	case PVM_INVERTED:
		return second ? ~pvm_pattern(page) : pvm_pattern(page);
	}
	return 0;
}

static void watch_page(struct pvm_area *area, u64 *seqcount, u64 page)
{
	u64 seq, value, want;

	seq = READ_ONCE(seqcount[page]);
	/* Pairs with the barriers in pvm_next_step(), as does the next one. */
	smp_rmb();
	value = READ_ONCE(*page_ptr(PREFAULT_GPA, page, area->page_size));
	/* See above. */
	smp_rmb();
	if (seq & 1 || seq != READ_ONCE(seqcount[page]))
		return;

	want = expected_value(area->rule, page, seq);
	__GUEST_ASSERT(value == want, "Page %lu, step %lu: expected %lx, read %lx",
		       page, seq, want, value);
	WRITE_ONCE(area->checked, area->checked + 1);
}

static void watch(struct pvm_area *area, u64 *seqcount)
{
	u64 i;

	while (!READ_ONCE(area->stop)) {
		for (i = 0; i < area->nr; i++)
			watch_page(area, seqcount, area->list[i]);
		WRITE_ONCE(area->passes, area->passes + 1);
	}
}

static void scribble(struct pvm_area *area)
{
	u64 i, value = 0;

	while (!READ_ONCE(area->stop)) {
		for (i = 0; i < area->nr; i++)
			WRITE_ONCE(*page_ptr(PREFAULT_GPA, area->list[i], area->page_size),
				   ++value);
		WRITE_ONCE(area->passes, area->passes + 1);
	}
}

static void guest_code(struct pvm_area *area, u64 *seqcount)
{
	for (;;) {
		switch (area->op) {
		case PVM_WARM_UP:
			warm_up(area);
			break;
		case PVM_LOAD:
			load(area, PREFAULT_GPA, area->list, area->values, area->nr);
			break;
		case PVM_STORE:
			store(area, PREFAULT_GPA, area->list, area->nr);
			break;
		case PVM_WATCH:
			watch(area, seqcount);
			break;
		case PVM_SCRIBBLE:
			scribble(area);
			break;
		}
		GUEST_SYNC(0);
	}
}

/*
 * The host's side of it.
 */

struct pvm pvm;

void pvm_create_type(unsigned long type, u32 ring_bytes, u32 nr)
{
	const struct vm_shape shape = { .mode = VM_MODE_DEFAULT, .type = type };
	struct prefault_tables tables;
	gva_t gva[PVM_MAX_VCPUS];
	u32 i;

	pvm.vm = __vm_create(shape, nr, PVM_SPAN * pvm.page_size / MIN_PAGE_SIZE);
	if (ring_bytes)
		vm_enable_dirty_ring(pvm.vm, ring_bytes);
	if (!pvm.keep_default)
		vm_set_prefault(pvm.vm, 0, 0);

	tables = prefault_virt_map(pvm.vm, PREFAULT_GPA, PVM_SPAN * pvm.page_size);
	pvm.nr_vcpus = nr;
	for (i = 0; i < nr; i++) {
		pvm.vcpus[i] = vm_vcpu_add(pvm.vm, i, guest_code);
		gva[i] = vm_alloc(pvm.vm, align_up(sizeof(**pvm.areas), pvm.page_size),
				  KVM_UTIL_MIN_VADDR);
		pvm.areas[i] = addr_gva2hva(pvm.vm, gva[i]);
		memset(pvm.areas[i], 0, sizeof(**pvm.areas));
		pvm.areas[i]->page_size = pvm.page_size;
		pvm.areas[i]->tables = tables;
	}
	kvm_arch_vm_finalize_vcpus(pvm.vm);

	for (i = 0; i < nr; i++)
		vcpu_args_set(pvm.vcpus[i], 2, (u64)gva[i],
			      (u64)gva[0] + offsetof(struct pvm_area, seq));
}

void pvm_create(u32 nr)
{
	pvm_create_type(VM_TYPE_DEFAULT, 0, nr);
}

void *pvm_page(void *hva, u64 page)
{
	return hva + page * pvm.page_size;
}

u64 *pvm_word(void *hva, u64 page)
{
	return pvm_page(hva, page);
}

void pvm_fill(void *hva, u64 first, u64 nr)
{
	u64 i;

	for (i = 0; i < nr; i++)
		*pvm_word(hva, i) = pvm_pattern(first + i);
}

void pvm_set_slot(u32 slot, u32 flags, u64 first, u64 nr, void *hva)
{
	vm_set_user_memory_region(pvm.vm, slot, flags, PREFAULT_GPA + first * pvm.page_size,
				  nr * pvm.page_size, hva);
}

void *pvm_mmap(u64 nr, u64 offset_pages)
{
	return prefault_mmap(nr * pvm.page_size, offset_pages * pvm.page_size,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

void *pvm_add_memory(u32 flags, u64 nr)
{
	void *hva = pvm_mmap(nr, 0);

	pvm_fill(hva, 0, nr);
	pvm_set_slot(PVM_SLOT, flags, 0, nr, hva);
	return hva;
}

/* Returns true if the exit was one for memory that is not there. */
static bool handle_mmio(struct kvm_run *run)
{
	const u64 value = PVM_MMIO_VALUE;

	if (run->exit_reason != KVM_EXIT_MMIO ||
	    run->mmio.phys_addr < PREFAULT_GPA)
		return false;

	if (run->mmio.is_write) {
		pvm.nr_mmio_writes++;
	} else {
		pvm.nr_mmio_reads++;
		memcpy(run->mmio.data, &value, sizeof(value));
	}
	return true;
}

/*
 * Returns true if the exit asks for other attributes of the page.  It is one
 * that has them now: they were changed at this moment.
 */
static bool handle_memory_fault(struct kvm_run *run, int ret)
{
	if (ret != -1 || errno != EFAULT || run->exit_reason != KVM_EXIT_MEMORY_FAULT)
		return false;

	return true;
}

/* Returns true if the exit was one for a full dirty ring. */
static bool handle_ring_full(struct kvm_run *run)
{
	if (run->exit_reason != KVM_EXIT_DIRTY_RING_FULL)
		return false;

	if (pvm.ring_full)
		pvm.ring_full();
	else
		usleep(100);
	return true;
}

static void run_guest(u32 i)
{
	struct kvm_vcpu *vcpu = pvm.vcpus[i];
	struct ucall uc;
	int ret;

	for (;;) {
		ret = _vcpu_run(vcpu);
		if (handle_memory_fault(vcpu->run, ret))
			continue;
		TEST_ASSERT(!ret, KVM_IOCTL_ERROR(KVM_RUN, ret));
		if (handle_mmio(vcpu->run) || handle_ring_full(vcpu->run))
			continue;

		switch (get_ucall(vcpu, &uc)) {
		case UCALL_SYNC:
			return;
		case UCALL_ABORT:
			REPORT_GUEST_ASSERT(uc);
			break;
		default:
			vcpu_dump(stderr, vcpu, 2);
			TEST_FAIL("Unexpected exit: %s",
				  exit_reason_str(vcpu->run->exit_reason));
		}
	}
}

void pvm_run(u32 i, enum pvm_op op)
{
	pvm.areas[i]->op = op;
	run_guest(i);
}

struct prefault_stats pvm_run_list(enum pvm_op op, u64 nr)
{
	struct prefault_stats start, end, sum = {};

	pvm_run(0, PVM_WARM_UP);

	pvm.areas[0]->nr = nr;
	prefault_read_stats(pvm.vcpus[0], &start);
	pvm_run(0, op);
	prefault_read_stats(pvm.vcpus[0], &end);

	prefault_add_stats(&sum, &start, &end);
	return sum;
}

void pvm_list_range(u64 first, u64 nr)
{
	u64 i;

	for (i = 0; i < nr; i++)
		pvm.areas[0]->list[i] = first + i;
}

struct prefault_stats pvm_load_range(u64 first, u64 nr)
{
	pvm_list_range(first, nr);
	return pvm_run_list(PVM_LOAD, nr);
}

struct prefault_stats pvm_load_page(u64 page)
{
	return pvm_load_range(page, 1);
}

struct prefault_stats pvm_store_page(u64 page, u64 value)
{
	pvm_list_range(page, 1);
	pvm.areas[0]->value = value;
	return pvm_run_list(PVM_STORE, 1);
}

u64 pvm_nr_faults(const struct prefault_stats *stats)
{
#ifdef __x86_64__
	return stats->pf_taken;
#else
	/* One exit is the one that ended the list. */
	return stats->exits - 1;
#endif
}

void pvm_expect_patterns(u64 nr)
{
	u64 i, page;

	for (i = 0; i < nr; i++) {
		page = pvm.areas[0]->list[i];
		TEST_ASSERT(pvm.areas[0]->values[i] == pvm_pattern(page),
			    "Page %lu: the guest should read %lx, not %lx", page,
			    pvm_pattern(page), pvm.areas[0]->values[i]);
	}
}

void pvm_pre_fault(u64 nr)
{
	struct kvm_pre_fault_memory range = {
		.gpa = PREFAULT_GPA,
		.size = nr * pvm.page_size,
	};
	int ret;

	while (range.size) {
		ret = __vcpu_ioctl(pvm.vcpus[0], KVM_PRE_FAULT_MEMORY, &range);
		TEST_ASSERT(!ret || errno == EINTR || errno == EAGAIN,
			    KVM_IOCTL_ERROR(KVM_PRE_FAULT_MEMORY, ret));
	}
}

void pvm_expect_mapped(u64 first, u64 nr)
{
	struct prefault_stats stats = pvm_load_range(first, nr);

	TEST_ASSERT(!stats.windows && pvm_nr_faults(&stats) <= PVM_FAULT_NOISE,
		    "Pages %lu to %lu should be mapped, but took %lu faults and %lu windows",
		    first, first + nr - 1, pvm_nr_faults(&stats), stats.windows);
}

void pvm_expect_window(void *hva, u64 size, u64 page, u64 want)
{
	struct prefault_stats stats;
	int tries;

	for (tries = 0; tries < 5; tries++) {
		prefault_unmap_guest(hva, size);
		stats = pvm_load_page(page);
		TEST_ASSERT(stats.windows == 1,
			    "Page %lu should take one fault with a window, took %lu",
			    page, stats.windows);
		TEST_ASSERT(stats.mapped <= want,
			    "The window of page %lu may map %lu pages, mapped %lu",
			    page, want, stats.mapped);
		if (stats.mapped == want)
			return;
	}
	TEST_FAIL("The window of page %lu should map %lu pages, mapped %lu (absent %lu, raced %lu)",
		  page, want, stats.mapped, stats.absent, stats.raced);
}

/*
 * vCPUs that run while the host does something else.
 */

static pthread_t threads[PVM_MAX_VCPUS];
static bool running[PVM_MAX_VCPUS];

static void *vcpu_thread(void *arg)
{
	u64 i = (u64)arg;

	run_guest(i);
	WRITE_ONCE(running[i], false);
	return NULL;
}

u32 pvm_nr_running(void)
{
	u32 i, nr = 0;

	for (i = 0; i < pvm.nr_vcpus; i++)
		nr += READ_ONCE(running[i]);
	return nr;
}

void pvm_start_vcpus(enum pvm_op op, enum pvm_rule rule, u64 first, u64 nr)
{
	u32 i, j;

	for (i = 0; i < pvm.nr_vcpus; i++) {
		pvm_run(i, PVM_WARM_UP);

		for (j = 0; j < nr; j++)
			pvm.areas[i]->list[j] = first + j;
		prefault_shuffle(pvm.areas[i]->list, nr, &pvm.rng);
		pvm.areas[i]->nr = nr;
		pvm.areas[i]->rule = rule;
		pvm.areas[i]->stop = 0;
		pvm.areas[i]->op = op;
		running[i] = true;
		kvm_pthread_create(&threads[i], NULL, vcpu_thread, (void *)(u64)i);
	}
}

void pvm_wait_for_passes(u64 nr)
{
	u64 start[PVM_MAX_VCPUS];
	u32 i;

	for (i = 0; i < pvm.nr_vcpus; i++)
		start[i] = READ_ONCE(pvm.areas[i]->passes);
	for (i = 0; i < pvm.nr_vcpus; i++)
		while (READ_ONCE(pvm.areas[i]->passes) < start[i] + nr)
			usleep(100);
}

void pvm_ask_to_stop(void)
{
	u32 i;

	for (i = 0; i < pvm.nr_vcpus; i++)
		WRITE_ONCE(pvm.areas[i]->stop, 1);
}

void pvm_stop_vcpus(void)
{
	u32 i;

	pvm_ask_to_stop();
	for (i = 0; i < pvm.nr_vcpus; i++)
		kvm_pthread_join(threads[i], NULL);
}

void pvm_next_step(u64 first, u64 nr)
{
	u64 i;

	/* Pairs with watch_page(): the change is complete before its step is even, */
	smp_wmb();
	for (i = first; i < first + nr; i++)
		WRITE_ONCE(pvm.areas[0]->seq[i], pvm.areas[0]->seq[i] + 1);
	/* and the step is odd before the change begins. */
	smp_wmb();
}

u64 pvm_sum_of_windows(void)
{
	struct prefault_stats stats;
	u64 windows = 0;
	u32 i;

	for (i = 0; i < pvm.nr_vcpus; i++) {
		prefault_read_stats(pvm.vcpus[i], &stats);
		windows += stats.windows;
	}
	return windows;
}

u64 pvm_random(u64 limit)
{
	return kvm_random_u32_in_range(&pvm.rng, 0, limit - 1);
}

void pvm_expect_watched(void)
{
	u64 checked = 0;
	u32 i;

	for (i = 0; i < pvm.nr_vcpus; i++)
		checked += pvm.areas[i]->checked;
	TEST_ASSERT(checked, "No page was ever checked: nothing was tested");
	TEST_ASSERT(pvm_sum_of_windows(), "There was no window: nothing was tested");
}

void pvm_require(void)
{
	TEST_REQUIRE(kvm_has_cap(KVM_CAP_AUTO_PREFAULT));
#ifdef __x86_64__
	/* Shadow paging maps what guest page tables say: nothing to prefault. */
	TEST_REQUIRE(kvm_is_tdp_enabled());
#endif
}

bool pvm_uses_shadow_mmu(void)
{
#ifdef __x86_64__
	return !get_kvm_param_bool("tdp_mmu");
#else
	return false;
#endif
}

void pvm_set_up(void)
{
	pvm.page_size = getpagesize();
	pvm.max_size = kvm_check_cap(KVM_CAP_AUTO_PREFAULT);
	pvm.full_pages = min_t(u64, pvm.max_size / pvm.page_size, PREFAULT_PAGES_MAX);
	pvm.full_size = pvm.full_pages * pvm.page_size;
	pvm.rng = new_kvm_random_state(kvm_random_seed % (INT_MAX - 1) + 1);
}

void pvm_tear_down(void)
{
	if (pvm.vm)
		kvm_vm_free(pvm.vm);
	pvm.vm = NULL;
}
