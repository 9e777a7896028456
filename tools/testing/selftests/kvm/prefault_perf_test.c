// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a guest's first touch of its memory costs, with and without
 * KVM_CAP_AUTO_PREFAULT.
 *
 * One run measures one case and prints one line, which starts with "mode=".
 * The guest touches a list of pages in one loop without any exit of its own;
 * everything else (its code, its page tables, the list) has been mapped before.
 * With -w 0, the default, no kernel support is needed, so that the same binary
 * measures a kernel without the capability.
 *
 * Under QEMU's -icount shift=0, ns counts the instructions of host and guest.
 */
#include <pthread.h>
#include <time.h>

#include <linux/bitmap.h>

#include "kvm_util.h"
#include "prefault_util.h"
#include "processor.h"
#include "test_util.h"
#include "ucall_common.h"

#define TEST_SLOT	1
#define MAX_VCPUS	64
#define MAX_PAGES	BIT(20)

enum mode {
	MODE_RESIDENT,
	MODE_UFFD,
	MODE_FILE,
	MODE_LOGGED,
	NR_MODES
};

static const char * const mode_names[NR_MODES] = {
	"resident", "uffd", "file", "logged"
};

enum order {
	ORDER_FORWARD,
	ORDER_REVERSE,
	ORDER_RANDOM,
	ORDER_STRIDED,
	NR_ORDERS
};

static const char * const order_names[NR_ORDERS] = {
	"forward", "reverse", "random", "strided"
};

static struct params {
	enum mode mode;
	enum order order;
	u64 chunk;
	u64 window;
	bool fixed;
	u32 npages;
	u32 seed;
	u32 nr_vcpus;
	bool write;
	u32 stride;
	u32 sparse;
	bool pre_fault;
	bool populated;
} params = {
	.npages = 4096,
	.seed = 1,
	.nr_vcpus = 1,
	.stride = 16,
	.sparse = 1,
};

static struct {
	u64 page_size;
	bool write;
	u32 *list;
	u32 *scratch;
	struct prefault_tables tables;
} guest;

/* The loop that is measured. */
static noinline void touch_pages(gva_t base, u32 *list, u64 nr)
{
	u64 i;

	if (guest.write) {
		for (i = 0; i < nr; i++)
			WRITE_ONCE(*(u64 *)(base + list[i] * guest.page_size), i);
	} else {
		for (i = 0; i < nr; i++)
			READ_ONCE(*(u64 *)(base + list[i] * guest.page_size));
	}
}

static void guest_code(u64 first, u64 nr)
{
	u64 i;

	prefault_touch_tables(&guest.tables);
	for (i = 0; i < nr; i++)
		READ_ONCE(guest.list[first + i]);
	touch_pages((gva_t)guest.scratch, guest.scratch, 1);
	GUEST_SYNC(0);

	touch_pages(PREFAULT_GPA, guest.list + first, nr);
	GUEST_DONE();
}

static void run_until(struct kvm_vcpu *vcpu, u64 cmd)
{
	struct ucall uc;

	vcpu_run(vcpu);
	TEST_ASSERT(get_ucall(vcpu, &uc) == cmd, "Expected ucall %lu, not %lu",
		    cmd, uc.cmd);
}

static void pre_fault(struct kvm_vcpu *vcpu, u64 size)
{
	struct kvm_pre_fault_memory range = { .gpa = PREFAULT_GPA, .size = size };
	int ret;

	while (range.size) {
		ret = __vcpu_ioctl(vcpu, KVM_PRE_FAULT_MEMORY, &range);
		TEST_ASSERT(!ret || errno == EINTR || errno == EAGAIN,
			    KVM_IOCTL_ERROR(KVM_PRE_FAULT_MEMORY, ret));
	}
}

static pthread_barrier_t start_line;

static void *vcpu_thread(void *vcpu)
{
	pthread_barrier_wait(&start_line);
	run_until(vcpu, UCALL_DONE);
	return NULL;
}

static u64 now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return timespec_to_ns(ts);
}

/* Returns what the touching took. */
static u64 measure(struct kvm_vcpu **vcpus, u64 size)
{
	pthread_t threads[MAX_VCPUS];
	u64 start;
	u32 i;

	if (params.pre_fault) {
		start = now();
		pre_fault(vcpus[0], size);
		return now() - start;
	}

	if (params.nr_vcpus == 1) {
		start = now();
		run_until(vcpus[0], UCALL_DONE);
		return now() - start;
	}

	pthread_barrier_init(&start_line, NULL, params.nr_vcpus + 1);
	for (i = 0; i < params.nr_vcpus; i++)
		kvm_pthread_create(&threads[i], NULL, vcpu_thread, vcpus[i]);
	start = now();
	pthread_barrier_wait(&start_line);
	for (i = 0; i < params.nr_vcpus; i++)
		kvm_pthread_join(threads[i], NULL);
	return now() - start;
}

static void fill(u64 *hva, u64 size)
{
	u64 i, words_per_page = getpagesize() / sizeof(u64);

	for (i = 0; i < size / getpagesize(); i++)
		hva[i * words_per_page] = ~i;
}

/* A snapshot: its pages are in the page cache. */
static int create_file(u64 size)
{
	int fd = kvm_memfd_alloc(size, false);
	u64 *hva = kvm_mmap(size, PROT_READ | PROT_WRITE, MAP_SHARED, fd);

	fill(hva, size);
	kvm_munmap(hva, size);
	return fd;
}

static void *create_memory(u64 size)
{
	void *hva;

	if (params.mode == MODE_FILE) {
		hva = prefault_mmap(size, 0, MAP_PRIVATE, create_file(size));
		if (params.populated)
			kvm_madvise(hva, size, MADV_POPULATE_READ);
		return hva;
	}

	hva = prefault_mmap(size, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	if (params.mode != MODE_UFFD)
		fill(hva, size);
	return hva;
}

/* The pages to touch, in this order; returns their number. */
static u32 create_list(u32 *list)
{
	struct kvm_random_state rng = new_kvm_random_state(params.seed);
	u32 i, j, page, nr = params.npages / params.sparse;

	for (i = 0; i < nr; i++)
		list[i] = i;

	if (params.order == ORDER_REVERSE) {
		for (i = 0; i < nr; i++)
			list[i] = nr - 1 - i;
	} else if (params.order == ORDER_RANDOM) {
		prefault_shuffle(list, nr, &rng);
	} else if (params.order == ORDER_STRIDED) {
		for (i = 0, j = 0; i < params.stride && j < nr; i++)
			for (page = i; page < nr; page += params.stride)
				list[j++] = page;
	}

	for (i = 0; params.sparse > 1 && i < nr; i++)
		list[i] = list[i] * params.sparse +
			  kvm_random_u32_in_range(&rng, 0, params.sparse - 1);

	return nr;
}

static u64 count_dirty(struct kvm_vm *vm)
{
	unsigned long *bitmap = bitmap_zalloc(params.npages);
	u64 dirty = 0;
	u32 i;

	TEST_ASSERT(bitmap, "Out of memory");
	kvm_vm_get_dirty_log(vm, TEST_SLOT, bitmap);
	for (i = 0; i < params.npages; i++)
		dirty += test_bit(i, bitmap);
	free(bitmap);
	return dirty;
}

/*
 * Pages that were mapped ahead and not accessed: each page that was touched has
 * either faulted or been mapped ahead.  Faults on what another vCPU was mapping
 * at the same time count twice.  -1 where that cannot be told: the kernel does
 * not count faults, pages fault a second time to be written, or nothing was
 * touched.
 */
static s64 count_unused(const struct prefault_stats *stats, u64 touched)
{
	u64 faults = stats->pf_taken + stats->stage2_faults + stats->gstage_faults;
	s64 mapped = stats->mapped + faults;

	if (!faults || params.pre_fault)
		return -1;
	if (params.write && (params.mode == MODE_LOGGED || params.mode == MODE_FILE))
		return -1;

	return max(mapped - (s64)touched, (s64)0);
}

static void *guest_alloc(struct kvm_vm *vm, gva_t *gva, u64 size)
{
	*gva = vm_alloc(vm, align_up(size, getpagesize()), KVM_UTIL_MIN_VADDR);
	return addr_gva2hva(vm, *gva);
}

static void run_case(void)
{
	u64 page_size = getpagesize(), size = params.npages * page_size;
	struct prefault_stats before[MAX_VCPUS], after, sum = {};
	struct prefault_uffd *uffd = NULL;
	struct kvm_vcpu *vcpus[MAX_VCPUS];
	u64 ns, dirty = 0, events = 0;
	u32 nr, i, first, *list;
	gva_t list_gva, scratch;
	struct kvm_vm *vm;
	void *hva;

	/* What it takes to map the memory twice is enough for the list, too. */
	vm = __vm_create_with_vcpus(VM_SHAPE_DEFAULT, params.nr_vcpus,
				    size / MIN_PAGE_SIZE, guest_code, vcpus);
	list = guest_alloc(vm, &list_gva, params.npages * sizeof(u32));
	nr = create_list(list);
	*(u32 *)guest_alloc(vm, &scratch, page_size) = 0;

	hva = create_memory(size);
	vm_set_user_memory_region(vm, TEST_SLOT,
				  params.mode == MODE_LOGGED ? KVM_MEM_LOG_DIRTY_PAGES : 0,
				  PREFAULT_GPA, size, hva);

	guest.page_size = page_size;
	guest.write = params.write;
	guest.list = (u32 *)list_gva;
	guest.scratch = (u32 *)scratch;
	guest.tables = prefault_virt_map(vm, PREFAULT_GPA, size);
	sync_global_to_guest(vm, guest);

	for (i = 0, first = 0; i < params.nr_vcpus; i++) {
		u32 share = (nr - first) / (params.nr_vcpus - i);

		vcpu_args_set(vcpus[i], 2, (u64)first, (u64)share);
		first += share;
	}

	if (kvm_has_cap(KVM_CAP_AUTO_PREFAULT))
		vm_set_prefault(vm, 0, 0);
	for (i = 0; i < params.nr_vcpus; i++)
		run_until(vcpus[i], UCALL_SYNC);
	if (params.window)
		vm_set_prefault(vm, params.window,
				params.fixed ? KVM_AUTO_PREFAULT_FIXED : 0);

	if (params.mode == MODE_UFFD) {
		void *src = prefault_mmap(size, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);

		fill(src, size);
		uffd = prefault_uffd_start(hva, size, params.chunk, src);
	}

	for (i = 0; i < params.nr_vcpus; i++)
		prefault_read_stats(vcpus[i], &before[i]);

	ns = measure(vcpus, size);

	for (i = 0; i < params.nr_vcpus; i++) {
		prefault_read_stats(vcpus[i], &after);
		prefault_add_stats(&sum, &before[i], &after);
	}
	if (uffd) {
		prefault_uffd_stop(uffd);
		events = uffd->nr_events;
		prefault_uffd_free(uffd);
	}
	if (params.mode == MODE_LOGGED)
		dirty = count_dirty(vm);

	printf("mode=%s order=%s chunk=%lu window=%lu fixed=%d pages=%u touched=%u",
	       params.pre_fault ? "prefault" : mode_names[params.mode],
	       order_names[params.order], params.chunk, params.window,
	       params.fixed, params.npages, params.pre_fault ? params.npages : nr);
	printf(" exits=%lu pf_taken=%lu events=%lu ns=%lu", sum.exits,
	       sum.pf_taken, events, ns);
	printf(" windows=%lu mapped=%lu absent=%lu raced=%lu backoff=%lu dirty=%lu",
	       sum.windows, sum.mapped, sum.absent, sum.raced, sum.backoff, dirty);
	printf(" write=%d vcpus=%u seed=%u sparse=%u unused=%ld\n",
	       params.write, params.nr_vcpus, params.seed, params.sparse,
	       count_unused(&sum, nr));

	kvm_vm_free(vm);
}

static void help(const char *name, int status)
{
	FILE *out = status ? stderr : stdout;

	fprintf(out,
		"usage: %s [-m MODE] [-o ORDER] [-c BYTES] [-w BYTES] [-F] [-n PAGES]\n"
		"       [-s SEED] [-v VCPUS] [-W] [-t STRIDE] [-z Z] [-P] [-p]\n"
		" -m: resident (default), uffd, file (a private mapping of a file that is\n"
		"     in the page cache) or logged (resident, with dirty logging)\n"
		" -o: forward (default), reverse, random or strided\n"
		" -c: what the userfaultfd handler copies at once (default: a page)\n"
		" -w: the window (default: 0, off)\n"
		" -F: always the whole window\n"
		" -n: size of the memory in pages (default: 4096)\n"
		" -s: seed of the random numbers (default: 1)\n"
		" -v: number of vCPUs that share the work (default: 1)\n"
		" -W: write instead of read\n"
		" -t: stride in pages for -o strided (default: 16)\n"
		" -z: touch only one page in Z, at random positions (default: 1)\n"
		" -P: with -m file: the file is also in the host's page tables\n"
		" -p: no guest: measure KVM_PRE_FAULT_MEMORY\n",
		name);
	exit(status);
}

static int parse_name(const char *what, const char *arg,
		      const char * const *names, int nr)
{
	int i;

	for (i = 0; i < nr; i++)
		if (!strcmp(arg, names[i]))
			return i;

	fprintf(stderr, "unknown %s '%s'\n", what, arg);
	exit(1);
}

static void parse_args(int argc, char *argv[])
{
	u64 page_size = getpagesize();
	int opt;

	while ((opt = getopt(argc, argv, "m:o:c:w:Fn:s:v:Wt:z:Pph")) != -1) {
		switch (opt) {
		case 'm':
			params.mode = parse_name("mode", optarg, mode_names, NR_MODES);
			break;
		case 'o':
			params.order = parse_name("order", optarg, order_names, NR_ORDERS);
			break;
		case 'c':
			params.chunk = parse_size(optarg);
			break;
		case 'w':
			params.window = parse_size(optarg);
			break;
		case 'F':
			params.fixed = true;
			break;
		case 'n':
			params.npages = prefault_parse_number("-n", optarg, 1, MAX_PAGES);
			break;
		case 's':
			params.seed = prefault_parse_number("-s", optarg, 1, INT_MAX - 1);
			break;
		case 'v':
			params.nr_vcpus = prefault_parse_number("-v", optarg, 1, MAX_VCPUS);
			break;
		case 'W':
			params.write = true;
			break;
		case 't':
			params.stride = prefault_parse_number("-t", optarg, 1, MAX_PAGES);
			break;
		case 'z':
			params.sparse = prefault_parse_number("-z", optarg, 1, MAX_PAGES);
			break;
		case 'P':
			params.populated = true;
			break;
		case 'p':
			params.pre_fault = true;
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

	if (params.mode == MODE_UFFD && !params.chunk)
		params.chunk = page_size;
	if (params.chunk % page_size || params.chunk & (params.chunk - 1)) {
		fprintf(stderr, "-c: a power of two, at least a page, not %lu\n",
			params.chunk);
		exit(1);
	}
	if (params.npages < params.sparse || params.npages / params.sparse < params.nr_vcpus) {
		fprintf(stderr, "-n %u is too small\n", params.npages);
		exit(1);
	}
}

int main(int argc, char *argv[])
{
	parse_args(argc, argv);

	if (params.window)
		TEST_REQUIRE(kvm_has_cap(KVM_CAP_AUTO_PREFAULT));
	if (params.pre_fault)
		TEST_REQUIRE(kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY));

	run_case();
	return 0;
}
