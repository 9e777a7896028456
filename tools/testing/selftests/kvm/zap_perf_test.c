// SPDX-License-Identifier: GPL-2.0-only
/*
 * What it costs to invalidate guest memory of which little is mapped.
 *
 * The guest touches some pages of a range, the host throws the range away with
 * MADV_DONTNEED, and again.  The latter is measured (ns=), and the same with memory
 * that no VM uses (host=), which is the part that is not due to KVM, and all of it
 * together, i.e. with the guest's faults (round=).  One run measures one case and
 * prints one line, which starts with "mode=".
 *
 * With -w, one thread does so while the guest takes faults on other memory, and
 * the line tells how long those took.
 *
 * Under QEMU's -icount shift=0, ns counts the instructions of host and guest.
 */
#include <pthread.h>
#include <time.h>

#include "kvm_util.h"
#include "prefault_util.h"
#include "processor.h"
#include "test_util.h"
#include "ucall_common.h"

#define TEST_SLOT	1
#define MAX_PAGES	BIT(18)
#define MAX_ROUNDS	1000000

static struct params {
	u32 npages;
	u32 stride;
	u32 touched;
	u32 rounds;
	u32 step;
	bool wait;
} params = {
	.npages = 4096,
	.stride = 1,
	.rounds = 16,
};

static struct {
	u64 page_size;
	u64 base;
	u64 nr;
	u64 stride;
	u64 pages;
	struct prefault_tables tables;
} guest;

static u64 now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return timespec_to_ns(ts);
}

/* Touches @nr pages, @stride pages apart, from @base on in a ring of @pages. */
static void guest_code(void)
{
	u64 i, page;

	prefault_touch_tables(&guest.tables);
	for (;;) {
		GUEST_SYNC(0);
		for (i = 0; i < READ_ONCE(guest.nr); i++) {
			page = (guest.base + i * guest.stride) % guest.pages;
			WRITE_ONCE(*(u64 *)(PREFAULT_GPA + page * guest.page_size), i + 1);
		}
	}
}

static void run_guest(struct kvm_vcpu *vcpu)
{
	struct ucall uc;

	vcpu_run(vcpu);
	TEST_ASSERT(get_ucall(vcpu, &uc) == UCALL_SYNC, "Unexpected ucall %lu", uc.cmd);
}

static void touch(struct kvm_vcpu *vcpu, u64 base, u64 nr, u64 stride)
{
	guest.base = base;
	guest.nr = nr;
	guest.stride = stride;
	sync_global_to_guest(vcpu->vm, guest);
	run_guest(vcpu);
}

static u64 discard(void *hva, u64 first, u64 nr)
{
	u64 start = now();

	kvm_madvise(hva + first * guest.page_size, nr * guest.page_size, MADV_DONTNEED);
	return now() - start;
}

static void touch_host(void *hva, u64 base, u64 nr, u64 stride)
{
	u64 i, page;

	for (i = 0; i < nr; i++) {
		page = (base + i * stride) % guest.pages;
		WRITE_ONCE(*(u64 *)(hva + page * guest.page_size), i + 1);
	}
}

/* The guest finds zeroes where the host has thrown memory away. */
static void check_discarded(void *hva, u64 first, u64 nr)
{
	u64 i;

	for (i = 0; i < nr; i += 512)
		TEST_ASSERT_EQ(READ_ONCE(*(u64 *)(hva + (first + i) * guest.page_size)), 0);
}

static void measure_zaps(struct kvm_vcpu *vcpu, void *hva, void *other)
{
	u64 stride = params.touched ? params.npages / params.touched : 1;
	u64 ns = 0, host = 0, first, full, base = 0, start;
	u32 i;

	touch(vcpu, 0, guest.pages / params.stride, params.stride);
	full = discard(hva, 0, guest.pages);
	touch_host(other, 0, guest.pages / params.stride, params.stride);
	discard(other, 0, guest.pages);
	first = discard(hva, 0, params.npages);

	start = now();
	for (i = 0; i < params.rounds; i++) {
		if (params.touched) {
			touch(vcpu, base, params.touched, stride);
			touch_host(other, base, params.touched, stride);
		}
		ns += discard(hva, base, params.npages);
		host += discard(other, base, params.npages);
		base = (base + params.step) % (guest.pages - params.npages + 1);
	}
	start = now() - start;
	check_discarded(hva, 0, params.npages);

	printf("mode=zap pages=%u stride=%u touched=%u step=%u rounds=%u ", params.npages,
	       params.stride, params.touched, params.step, params.rounds);
	printf("full=%lu first=%lu round=%lu host=%lu ns=%lu\n", full, first,
	       start / params.rounds, host / params.rounds, ns / params.rounds);
}

static struct {
	void *hva;
	bool stop;
	u64 zaps;
} zapper;

static void *zap_thread(void *unused)
{
	while (!READ_ONCE(zapper.stop)) {
		discard(zapper.hva, 0, params.npages);
		zapper.zaps++;
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	u64 x = *(u64 *)a, y = *(u64 *)b;

	return x < y ? -1 : x > y;
}

/* The range that is zapped has its tables, the guest faults on what is behind. */
static void measure_waits(struct kvm_vcpu *vcpu, void *hva)
{
	u64 *ns = calloc(params.rounds, sizeof(*ns)), start;
	pthread_t thread;
	u32 i, page;

	TEST_ASSERT(ns, "Out of memory");
	touch(vcpu, 0, guest.pages / params.stride, params.stride);
	discard(hva, 0, guest.pages);

	zapper.hva = hva;
	kvm_pthread_create(&thread, NULL, zap_thread, NULL);
	for (i = 0; i < params.rounds; i++) {
		page = i % params.npages;
		if (!page)
			discard(hva, params.npages, params.npages);
		guest.base = params.npages + page;
		guest.nr = 1;
		sync_global_to_guest(vcpu->vm, guest);
		start = now();
		run_guest(vcpu);
		ns[i] = now() - start;
	}
	WRITE_ONCE(zapper.stop, true);
	kvm_pthread_join(thread, NULL);

	qsort(ns, params.rounds, sizeof(*ns), compare);
	printf("mode=wait pages=%u stride=%u rounds=%u zaps=%lu ", params.npages,
	       params.stride, params.rounds, zapper.zaps);
	printf("p50=%lu p99=%lu p99.9=%lu max=%lu\n", ns[params.rounds / 2],
	       ns[params.rounds * 99UL / 100], ns[params.rounds * 999UL / 1000],
	       ns[params.rounds - 1]);
	free(ns);
}

static void help(const char *name, int status)
{
	fprintf(status ? stderr : stdout,
		"usage: %s [-n PAGES] [-i STRIDE] [-t PAGES] [-r ROUNDS] [-s STEP] [-w]\n"
		" -n: size of the range that is invalidated, in pages (default: 4096)\n"
		" -i: at first every STRIDE-th page is touched (default: 1)\n"
		" -t: pages touched between two rounds, evenly spread (default: 0)\n"
		" -r: number of rounds (default: 16)\n"
		" -s: the range moves by STEP pages a round, in memory of twice its\n"
		"     size (default: 0)\n"
		" -w: measure faults, one a round, while another thread invalidates\n",
		name);
	exit(status);
}

static void parse_args(int argc, char *argv[])
{
	int opt;

	while ((opt = getopt(argc, argv, "n:i:t:r:s:wh")) != -1) {
		switch (opt) {
		case 'n':
			params.npages = prefault_parse_number("-n", optarg, 1, MAX_PAGES);
			break;
		case 'i':
			params.stride = prefault_parse_number("-i", optarg, 1, MAX_PAGES);
			break;
		case 't':
			params.touched = prefault_parse_number("-t", optarg, 0, MAX_PAGES);
			break;
		case 'r':
			params.rounds = prefault_parse_number("-r", optarg, 1, MAX_ROUNDS);
			break;
		case 's':
			params.step = prefault_parse_number("-s", optarg, 0, MAX_PAGES);
			break;
		case 'w':
			params.wait = true;
			break;
		case 'h':
			help(argv[0], 0);
			break;
		default:
			help(argv[0], 1);
			break;
		}
	}
	if (optind < argc)
		help(argv[0], 1);
	if (params.touched > params.npages || params.stride > params.npages ||
	    params.step > params.npages) {
		fprintf(stderr, "-n %u is too small\n", params.npages);
		exit(1);
	}
}

int main(int argc, char *argv[])
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	void *hva, *other;
	u64 size;

	parse_args(argc, argv);

	guest.page_size = getpagesize();
	guest.pages = (u64)params.npages * (params.step || params.wait ? 2 : 1);
	size = guest.pages * guest.page_size;

	/* Of which the library makes room for the page tables. */
	vm = __vm_create_with_vcpus(VM_SHAPE_DEFAULT, 1, size / MIN_PAGE_SIZE + 64,
				    guest_code, &vcpu);
	hva = prefault_mmap(size, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	other = prefault_mmap(size, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	vm_set_user_memory_region(vm, TEST_SLOT, 0, PREFAULT_GPA, size, hva);
	guest.tables = prefault_virt_map(vm, PREFAULT_GPA, size);
	sync_global_to_guest(vm, guest);
	if (kvm_has_cap(KVM_CAP_AUTO_PREFAULT))
		vm_set_prefault(vm, 0, 0);
	run_guest(vcpu);

	if (params.wait)
		measure_waits(vcpu, hva);
	else
		measure_zaps(vcpu, hva, other);

	kvm_vm_free(vm);
	return 0;
}
