// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the tests of KVM_CAP_AUTO_PREFAULT share.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stddef.h>

#include "prefault_util.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

static const struct {
	const char *name;
	size_t offset;
} stat_fields[] = {
	{ "prefault_windows",	offsetof(struct prefault_stats, windows) },
	{ "prefault_mapped",	offsetof(struct prefault_stats, mapped) },
	{ "prefault_absent",	offsetof(struct prefault_stats, absent) },
	{ "prefault_raced",	offsetof(struct prefault_stats, raced) },
	{ "prefault_backoff",	offsetof(struct prefault_stats, backoff) },
	{ "exits",		offsetof(struct prefault_stats, exits) },
	{ "pf_taken",		offsetof(struct prefault_stats, pf_taken) },
	{ "pf_fast",		offsetof(struct prefault_stats, pf_fast) },
	{ "stage2_translation_faults", offsetof(struct prefault_stats, stage2_faults) },
	{ "gstage_faults",	offsetof(struct prefault_stats, gstage_faults) },
	{ "stage2_permission_faults", offsetof(struct prefault_stats, write_faults) },
	{ "gstage_fast_dirty",	offsetof(struct prefault_stats, write_faults) },
};

static u64 *stat_field(struct prefault_stats *stats, int i)
{
	return (void *)stats + stat_fields[i].offset;
}

void prefault_read_stats(struct kvm_vcpu *vcpu, struct prefault_stats *stats)
{
	struct kvm_binary_stats *bin = &vcpu->stats;
	struct kvm_stats_desc *desc;
	int i, j;

	memset(stats, 0, sizeof(*stats));

	if (!bin->desc) {
		read_stats_header(bin->fd, &bin->header);
		bin->desc = read_stats_descriptors(bin->fd, &bin->header);
	}

	for (i = 0; i < bin->header.num_desc; i++) {
		desc = get_stats_descriptor(bin->desc, i, &bin->header);
		for (j = 0; j < ARRAY_SIZE(stat_fields); j++) {
			if (!strcmp(desc->name, stat_fields[j].name))
				read_stat_data(bin->fd, &bin->header, desc,
					       stat_field(stats, j), 1);
		}
	}
}

void prefault_add_stats(struct prefault_stats *sum,
			const struct prefault_stats *start,
			const struct prefault_stats *end)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(stat_fields); i++)
		*stat_field(sum, i) += *stat_field((void *)end, i) -
				       *stat_field((void *)start, i);
}

bool prefault_write_file(const char *path, const char *value)
{
	/* Not by stdio, which would truncate it: that means something to some. */
	int fd = open(path, O_WRONLY);
	bool written;

	if (fd < 0)
		return false;
	written = write(fd, value, strlen(value)) == (ssize_t)strlen(value);
	close(fd);
	return written;
}

int __vm_set_prefault(struct kvm_vm *vm, u64 window, u64 flags)
{
	struct kvm_enable_cap cap = {
		.cap = KVM_CAP_AUTO_PREFAULT,
		.args = { window, flags },
	};

	return __vm_ioctl(vm, KVM_ENABLE_CAP, &cap);
}

void vm_set_prefault(struct kvm_vm *vm, u64 window, u64 flags)
{
	int ret = __vm_set_prefault(vm, window, flags);

	TEST_ASSERT(!ret, "A window of %lu bytes, flags %#lx, should be accepted, errno: %d",
		    window, flags, errno);
}

void *prefault_mmap(u64 size, u64 offset, int flags, int fd)
{
	u64 align = PREFAULT_PAGES_MAX * getpagesize();
	void *reserved, *hva;

	reserved = kvm_mmap(size + offset + align, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

	hva = mmap(align_ptr_up(reserved, align) + offset, size,
		   PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
	TEST_ASSERT(hva != MAP_FAILED, __KVM_SYSCALL_ERROR("mmap()", -1));

	if (thp_configured())
		kvm_madvise(hva, size, MADV_NOHUGEPAGE);

	return hva;
}

void prefault_make_huge(void *hva, u64 size)
{
	u64 huge_size = PREFAULT_PAGES_MAX * getpagesize();
	void *start = align_ptr_up(hva, huge_size);

	kvm_madvise(hva, size, MADV_HUGEPAGE);
	kvm_madvise(start, (hva + size - start) / huge_size * huge_size, MADV_COLLAPSE);
}

void prefault_unmap_guest(void *hva, u64 size)
{
	const int prot = PROT_READ | PROT_WRITE;

	/*
	 * Any change of protection will do.  This one never takes away what a
	 * vCPU needs at the same time, but not every file can be executed.
	 */
	TEST_ASSERT((!mprotect(hva, size, prot | PROT_EXEC) ||
		     !mprotect(hva, size, PROT_NONE)) &&
		    !mprotect(hva, size, prot),
		    __KVM_SYSCALL_ERROR("mprotect()", -1));
}

u64 prefault_count_resident(void *hva, u64 size)
{
	u64 i, count = 0, npages = size / getpagesize();
	unsigned char *vec = malloc(npages);

	TEST_ASSERT(vec, "Out of memory");
	TEST_ASSERT(!mincore(hva, size, vec), __KVM_SYSCALL_ERROR("mincore()", -1));

	for (i = 0; i < npages; i++)
		count += vec[i] & 1;

	free(vec);
	return count;
}

void prefault_shuffle(u32 *list, u32 nr, struct kvm_random_state *rng)
{
	u32 i, j, tmp;

	for (i = nr; i > 1; i--) {
		j = kvm_random_u32_in_range(rng, 0, i - 1);
		tmp = list[i - 1];
		list[i - 1] = list[j];
		list[j] = tmp;
	}
}

struct prefault_tables prefault_virt_map(struct kvm_vm *vm, gpa_t gpa, u64 size)
{
	struct prefault_tables tables = {
		.gva = gpa + size,
		.page_size = vm->page_size,
	};
	gpa_t first, last;

	/* The library takes page after page: all tables lie between these. */
	first = vm_alloc_page_table(vm);
	virt_map(vm, gpa, gpa, size / vm->page_size);
	last = vm_alloc_page_table(vm);

	tables.npages = (last - first) / vm->page_size + 1;
	virt_map(vm, tables.gva, first, tables.npages);

	return tables;
}

static void uffd_copy(struct prefault_uffd *uffd, u64 offset)
{
	u64 start = offset - offset % uffd->chunk;
	struct uffdio_copy copy = {
		.dst = (u64)uffd->hva + start,
		.src = (u64)uffd->src + start,
		.len = min(uffd->chunk, uffd->size - start),
	};
	int ret = ioctl(uffd->fd, UFFDIO_COPY, &copy);

	/* Two vCPUs may ask for pages of one chunk. */
	TEST_ASSERT(!ret || errno == EEXIST, __KVM_SYSCALL_ERROR("UFFDIO_COPY", ret));
}

static void *uffd_handler(void *arg)
{
	struct prefault_uffd *uffd = arg;
	u64 page_mask = getpagesize() - 1;
	struct uffd_msg msg;
	u64 addr;
	int ret;

	for (;;) {
		ret = read(uffd->fd, &msg, sizeof(msg));
		TEST_ASSERT(ret == sizeof(msg) && msg.event == UFFD_EVENT_PAGEFAULT,
			    "Expected a page fault event, read %d bytes, event %#x",
			    ret, msg.event);

		addr = msg.arg.pagefault.address & ~page_mask;
		if (addr == (u64)uffd->stop_page)
			break;

		addr -= (u64)uffd->hva;
		uffd->offsets[uffd->nr_events++] = addr;
		if (uffd->before_copy)
			uffd->before_copy();
		uffd_copy(uffd, addr);
	}

	return NULL;
}

static void uffd_register(struct prefault_uffd *uffd, void *hva, u64 size)
{
	struct uffdio_register reg = {
		.range = { (u64)hva, size },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int ret = ioctl(uffd->fd, UFFDIO_REGISTER, &reg);

	TEST_ASSERT(!ret, __KVM_SYSCALL_ERROR("UFFDIO_REGISTER", ret));
}

struct prefault_uffd *prefault_uffd_start(void *hva, u64 size, u64 chunk,
					  void *src)
{
	struct prefault_uffd *uffd = calloc(1, sizeof(*uffd));
	struct uffdio_api api = { .api = UFFD_API };

	TEST_ASSERT(uffd, "Out of memory");
	uffd->hva = hva;
	uffd->size = size;
	uffd->chunk = chunk;
	uffd->src = src;

	/* Twice: a page may be asked for by several vCPUs. */
	uffd->offsets = calloc(2 * size / getpagesize(), sizeof(u64));
	TEST_ASSERT(uffd->offsets, "Out of memory");

	uffd->fd = syscall(__NR_userfaultfd, O_CLOEXEC);
	TEST_ASSERT(uffd->fd >= 0, __KVM_SYSCALL_ERROR("userfaultfd()", uffd->fd));
	TEST_ASSERT(!ioctl(uffd->fd, UFFDIO_API, &api),
		    __KVM_SYSCALL_ERROR("UFFDIO_API", -1));

	/* Whoever touches this page ends the handler, without another syscall. */
	uffd->stop_page = kvm_mmap(getpagesize(), PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1);
	uffd_register(uffd, uffd->stop_page, getpagesize());
	uffd_register(uffd, hva, size);

	kvm_pthread_create(&uffd->thread, NULL, uffd_handler, uffd);
	return uffd;
}

static void *touch_page(void *page)
{
	READ_ONCE(*(u8 *)page);
	return NULL;
}

void prefault_uffd_stop(struct prefault_uffd *uffd)
{
	struct uffdio_zeropage zero = {
		.range = { (u64)uffd->stop_page, getpagesize() },
	};
	pthread_t toucher;

	/* Not this thread: it lets the other one go on. */
	kvm_pthread_create(&toucher, NULL, touch_page, uffd->stop_page);
	kvm_pthread_join(uffd->thread, NULL);
	TEST_ASSERT(!ioctl(uffd->fd, UFFDIO_ZEROPAGE, &zero),
		    __KVM_SYSCALL_ERROR("UFFDIO_ZEROPAGE", -1));
	kvm_pthread_join(toucher, NULL);
}

void prefault_uffd_free(struct prefault_uffd *uffd)
{
	close(uffd->fd);
	kvm_munmap(uffd->stop_page, getpagesize());
	free(uffd->offsets);
	free(uffd);
}

u32 prefault_parse_number(const char *what, const char *arg, u32 min, u32 max)
{
	char *end;
	unsigned long value = strtoul(arg, &end, 0);

	if (*arg < '0' || *arg > '9' || *end || value < min || value > max) {
		fprintf(stderr, "%s: a number from %u to %u, not '%s'\n", what, min,
			max, arg);
		exit(1);
	}
	return value;
}
