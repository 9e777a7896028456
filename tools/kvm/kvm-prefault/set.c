// SPDX-License-Identifier: GPL-2.0
/* Negotiate a window for VMs, in the process that they belong to. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvm-prefault.h"
#include "inject.h"

/* VMs of one process. */
#define VMS_MAX		64

bool parse_window(const char *s, struct window *w)
{
	w->exact = true;
	if (!strcmp(s, "off")) {
		w->size = 0;
		return true;
	}

	return parse_size(s, &w->size);
}

static int no_window(int vm_fd)
{
	struct host host;

	host_read(&host);
	if (host.max || host.has_module_param)
		return fail(ST_VM_TYPE, "VM %d is of a type that cannot prefault",
			    vm_fd);

	return fail(ST_NO_CAP, "this kernel's KVM has no auto-prefault");
}

static int explain_error(int vm_fd, long error, uint64_t size, long max)
{
	char a[24], b[24];

	switch (error) {
	case -EINVAL:
		return fail(ST_VALUE, "VM %d: a window of %s is refused, it has to be a power of two from two pages to %s",
			    vm_fd, size_name(size, a), size_name(max, b));
	case -EIO:
		return fail(ST_NO_KVM, "VM %d belongs to another process",
			    vm_fd);
	case -EPERM:
	case -EACCES:
		return fail(ST_PERMISSION, "VM %d: the process may not do this call: %s",
			    vm_fd, strerror(-error));
	default:
		return fail(ST_FAILED, "VM %d: %s", vm_fd, strerror(-error));
	}
}

_Static_assert(offsetof(struct kvm_enable_cap, pad) <= STUB_ARG_MAX &&
	       sizeof(struct kvm_enable_cap) <= STUB_ARG_MAX + STUB_SIZE,
	       "the argument does not fit");

/* Enables the capability for one VM of the session's process. */
int enable_vm(struct session *s, int vm_fd, const struct window *w,
	      uint64_t *given)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_AUTO_PREFAULT };
	long max, error;
	int r;

	r = session_ioctl(s, vm_fd, KVM_CHECK_EXTENSION, NULL, 0,
			  KVM_CAP_AUTO_PREFAULT, &max);
	if (r)
		return r;
	if (max < 0)
		return explain_error(vm_fd, max, w->size, 0);
	if (!max)
		return no_window(vm_fd);

	cap.args[0] = w->size;
	if (!w->exact && w->size > (uint64_t)max)
		cap.args[0] = max;
	if (w->fixed)
		cap.args[1] = KVM_AUTO_PREFAULT_FIXED;
	*given = cap.args[0];
	r = session_ioctl(s, vm_fd, KVM_ENABLE_CAP, &cap,
			  offsetof(struct kvm_enable_cap, pad), 0, &error);
	if (r || !error)
		return r;

	return explain_error(vm_fd, error, w->size, max);
}

struct vm_list {
	int only;
	unsigned int n;
	int fds[VMS_MAX];
};

static int add_vm(void *ctx, int fd, const char *name)
{
	struct vm_list *vms = ctx;

	if (strcmp(name, "anon_inode:kvm-vm") ||
	    (vms->only >= 0 && vms->only != fd))
		return 0;
	if (vms->n == VMS_MAX)
		return fail(ST_FAILED, "more than %d VMs, use --vm", VMS_MAX);
	vms->fds[vms->n++] = fd;

	return 0;
}

static int find_vms(pid_t pid, struct vm_list *vms)
{
	int r = walk_fds(pid, add_vm, vms);

	if (r)
		return r;
	if (vms->n)
		return ST_OK;
	if (vms->only >= 0)
		return fail(ST_NO_KVM, "descriptor %d of process %d is not a VM",
			    vms->only, pid);

	return fail(ST_NO_KVM, "process %d has no VM", pid);
}

static int set_vms(pid_t pid, const struct vm_list *vms, const struct window *w)
{
	int r, error = ST_OK;
	struct session s = {};
	uint64_t given;
	unsigned int i;
	char buf[24];

	r = session_open(&s, pid);
	if (r)
		return r;
	for (i = 0; i < vms->n; i++) {
		r = enable_vm(&s, vms->fds[i], w, &given);
		if (!r)
			printf("VM %d: window %s%s\n", vms->fds[i],
			       size_name(given, buf),
			       w->fixed && given ? ", fixed" : "");
		else if (!error)
			error = r;
		if (r == ST_NO_PROCESS || r == ST_BUSY)
			break;
	}
	session_close(&s);

	return error;
}

int cmd_set(int argc, char **argv)
{
	static const struct option options[] = {
		{ "size", required_argument, NULL, 's' },
		{ "fixed", no_argument, NULL, 'f' },
		{ "vm", required_argument, NULL, 'v' },
		{ }
	};
	struct window w = { .size = SIZE_DEFAULT };
	struct vm_list vms = { .only = -1 };
	long number;
	pid_t pid;
	int c, r;

	while ((c = getopt_long(argc, argv, "s:fv:", options, NULL)) != -1) {
		switch (c) {
		case 's':
			if (!parse_window(optarg, &w))
				return fail(ST_USAGE, "--size needs a size like 2M or off, not '%s'",
					    optarg);
			break;
		case 'f':
			w.fixed = true;
			break;
		case 'v':
			if (!parse_number(optarg, 0, INT_MAX, &number))
				return fail(ST_USAGE, "--vm needs a descriptor, not '%s'",
					    optarg);
			vms.only = number;
			break;
		default:
			return ST_USAGE;
		}
	}
	if (optind + 1 != argc || !parse_number(argv[optind], 1, INT_MAX, &number))
		return fail(ST_USAGE, "usage: kvm-prefault set PID [--size SIZE|off] [--fixed] [--vm FD]");

	pid = number;
	r = check_process(&pid);
	if (!r)
		r = find_vms(pid, &vms);
	if (!r)
		r = lock_process(pid);

	return r ?: set_vms(pid, &vms, &w);
}
