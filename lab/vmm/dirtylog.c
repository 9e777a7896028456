// SPDX-License-Identifier: GPL-2.0
/*
 * Preloaded into a VMM (LD_PRELOAD): writes down what KVM_GET_DIRTY_LOG tells
 * it, into the file that DIRTY_LOG names.  For each call
 *
 *	log SLOT FIRST-GFN PAGES
 *	dirty GFN COUNT		for each run of dirty pages
 *	end
 *
 * in decimal.  Nothing that the VMM sees is changed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/kvm.h>

#define SLOTS	512

/* Slots of address space 0, as they were set last. */
static struct {
	unsigned long gfn, pages;
} slots[SLOTS];

/* Also the beginning of struct kvm_userspace_memory_region2. */
static void note_slot(const struct kvm_userspace_memory_region *r)
{
	long page_size = sysconf(_SC_PAGESIZE);

	if (r->slot >= SLOTS)
		return;
	slots[r->slot].gfn = r->guest_phys_addr / page_size;
	slots[r->slot].pages = r->memory_size / page_size;
}

static void note_dirty(const struct kvm_dirty_log *log)
{
	const char *path = getenv("DIRTY_LOG");
	const unsigned char *map = log->dirty_bitmap;
	unsigned long i, n, pages;
	FILE *f;

	if (!path || log->slot >= SLOTS)
		return;
	f = fopen(path, "ae");
	if (!f)
		return;
	pages = slots[log->slot].pages;
	fprintf(f, "log %u %lu %lu\n", log->slot, slots[log->slot].gfn, pages);
	for (i = 0; i < pages; i += n ? n : 1) {
		for (n = 0; i + n < pages && map[(i + n) / 8] >> (i + n) % 8 & 1;)
			n++;
		if (n)
			fprintf(f, "dirty %lu %lu\n", slots[log->slot].gfn + i, n);
	}
	fprintf(f, "end\n");
	fclose(f);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;
	long r;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	r = syscall(SYS_ioctl, fd, request, arg);
	if (r >= 0) {
		switch (request) {
		case KVM_SET_USER_MEMORY_REGION:
		case KVM_SET_USER_MEMORY_REGION2:
			note_slot(arg);
			break;
		case KVM_GET_DIRTY_LOG:
			note_dirty(arg);
			break;
		}
	}

	return r;
}
