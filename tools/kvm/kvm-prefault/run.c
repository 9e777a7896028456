// SPDX-License-Identifier: GPL-2.0
/*
 * Start a VMM and enable the capability on the VMs that it creates.
 *
 * The tool's own process becomes the VMM: whoever has started it keeps the
 * process number, the signals and the exit status that it would have without
 * us.  A helper, which is no child of the VMM, traces it and everything that
 * it starts.  At the end of each KVM_CREATE_VM the helper has the capability
 * enabled by the thread that made the call.  VMMs create VMs to look at what
 * KVM can do, too, so the helper stays until a vCPU of every VM that is still
 * there has entered KVM_RUN.  Then it exits, whereby the kernel lets go of all
 * threads without stopping one of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvm-prefault.h"
#include "inject.h"

/* As a shell has it. */
#define EXIT_CANNOT_RUN	126
#define EXIT_NOT_FOUND	127

#define TRACE_OPTIONS	(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | \
			 PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | \
			 PTRACE_O_TRACEEXEC)

struct vm {
	pid_t pid;
	int fd;
	bool started;
};

struct vcpu {
	pid_t pid;
	int fd;
	int vm_fd;
};

struct thread {
	pid_t tid;
	pid_t pid;
	/* The call that it is in: an ioctl of KVM, or 0. */
	unsigned long request;
	int fd;
	/* Its stub, until it is seen outside. */
	struct session *session;
};

static struct {
	struct window window;
	bool verbose;
	struct vm *vms;
	struct vcpu *vcpus;
	struct thread *threads;
	unsigned int nr_vms, nr_vcpus, nr_threads;
} trace;

/* Room for one more element at the end of an array, zeroed. */
static void *grow(void *array, unsigned int n, size_t size)
{
	if (!(n & (n - 1)))
		array = realloc(array, (n ? 2 * n : 1) * size);
	/* Let go of the VMM rather than go on half-blind. */
	if (!array)
		_exit(fail(ST_FAILED, "no memory"));
	memset((char *)array + n * size, 0, size);

	return array;
}

static struct thread *find_thread(pid_t tid)
{
	struct thread *t;
	unsigned int i;

	for (i = 0; i < trace.nr_threads; i++) {
		if (trace.threads[i].tid == tid)
			return &trace.threads[i];
	}

	trace.threads = grow(trace.threads, trace.nr_threads,
			     sizeof(*trace.threads));
	t = &trace.threads[trace.nr_threads++];
	t->tid = tid;
	t->pid = status_number(tid, tid, "Tgid");

	return t;
}

static void drop_thread(struct thread *t)
{
	free(t->session);
	*t = trace.threads[--trace.nr_threads];
}

static struct vm *find_vm(pid_t pid, int fd)
{
	unsigned int i;

	for (i = 0; i < trace.nr_vms; i++) {
		if (trace.vms[i].pid == pid && trace.vms[i].fd == fd)
			return &trace.vms[i];
	}

	return NULL;
}

/* A number that was closed and is used again is a new VM or vCPU. */
static void add_vm(pid_t pid, int fd)
{
	struct vm *vm = find_vm(pid, fd);

	if (!vm) {
		trace.vms = grow(trace.vms, trace.nr_vms, sizeof(*trace.vms));
		vm = &trace.vms[trace.nr_vms++];
	}
	*vm = (struct vm){ .pid = pid, .fd = fd };
}

static struct vcpu *find_vcpu(pid_t pid, int fd)
{
	unsigned int i;

	for (i = 0; i < trace.nr_vcpus; i++) {
		if (trace.vcpus[i].pid == pid && trace.vcpus[i].fd == fd)
			return &trace.vcpus[i];
	}

	return NULL;
}

static void add_vcpu(pid_t pid, int fd, int vm_fd)
{
	struct vcpu *vcpu = find_vcpu(pid, fd);

	if (!vcpu) {
		trace.vcpus = grow(trace.vcpus, trace.nr_vcpus,
				   sizeof(*trace.vcpus));
		vcpu = &trace.vcpus[trace.nr_vcpus++];
	}
	*vcpu = (struct vcpu){ .pid = pid, .fd = fd, .vm_fd = vm_fd };
}

/* Has every VM that was not closed been started? */
static bool all_started(void)
{
	unsigned int i;

	for (i = 0; i < trace.nr_vms; i++) {
		if (!trace.vms[i].started &&
		    fd_is_vm(trace.vms[i].pid, trace.vms[i].fd))
			return false;
	}

	return trace.nr_vms;
}

/*
 * A vCPU enters KVM_RUN.  One that we do not know, because its descriptor has
 * been duplicated, stands for every VM of its process.
 */
static bool vcpu_runs(pid_t pid, int fd)
{
	struct vcpu *vcpu = find_vcpu(pid, fd);
	bool found = false;
	unsigned int i;

	for (i = 0; i < trace.nr_vms; i++) {
		if (trace.vms[i].pid != pid ||
		    (vcpu && trace.vms[i].fd != vcpu->vm_fd))
			continue;
		trace.vms[i].started = true;
		found = true;
	}

	return found && all_started();
}

static void vm_created(struct thread *t, int fd)
{
	struct session *s;
	uint64_t given;
	char buf[24];
	int r;

	if (!fd_is_vm(t->pid, fd))
		return;
	add_vm(t->pid, fd);
	if (status_number(t->pid, t->tid, "Seccomp") > 0) {
		fail(ST_SECCOMP, "VM %d of process %d is left alone: its thread is under a seccomp filter",
		     fd, t->pid);
		return;
	}

	s = calloc(1, sizeof(*s));
	if (!s)
		return;
	s->pid = t->pid;
	s->tid = t->tid;
	s->stop = STOP_EXIT;
	r = session_prepare(s);
	if (r) {
		if (r < 0)
			warn("VM %d of process %d is left alone: created in an unusual way",
			     fd, t->pid);
		free(s);
		return;
	}
	t->session = s;
	r = enable_vm(s, fd, &trace.window, &given);
	if (!r && trace.verbose)
		warn("VM %d of process %d: window %s%s", fd, t->pid,
		     size_name(given, buf),
		     trace.window.fixed && given ? ", fixed" : "");
}

static void call_starts(struct thread *t,
			const struct __ptrace_syscall_info *info)
{
	t->request = 0;
	if (info->arch != AUDIT_ARCH_NATIVE || info->entry.nr != __NR_ioctl)
		return;
	switch ((unsigned int)info->entry.args[1]) {
	case KVM_CREATE_VM:
	case KVM_CREATE_VCPU:
		t->request = (unsigned int)info->entry.args[1];
		t->fd = info->entry.args[0];
		break;
	case KVM_RUN:
		if (vcpu_runs(t->pid, info->entry.args[0]))
			_exit(ST_OK);
		break;
	}
}

static void call_ends(struct thread *t, long result)
{
	unsigned long request = t->request;

	t->request = 0;
	if (result < 0)
		return;
	if (request == KVM_CREATE_VM)
		vm_created(t, result);
	else if (request == KVM_CREATE_VCPU && find_vm(t->pid, t->fd))
		add_vcpu(t->pid, result, t->fd);
}

static void syscall_stop(struct thread *t)
{
	struct __ptrace_syscall_info info;
	struct session *s = t->session;

	if (xptrace(PTRACE_GET_SYSCALL_INFO, t->tid, sizeof(info),
		    (uintptr_t)&info) <= 0)
		return;

	if (s && !in_slot(s, info.instruction_pointer)) {
		session_forget_slot(s);
		free(s);
		t->session = NULL;
	}
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
		call_starts(t, &info);
	else if (info.op == PTRACE_SYSCALL_INFO_EXIT)
		call_ends(t, info.exit.rval);
}

/* A new program: what its process had of KVM is no longer usable. */
static void program_starts(struct thread *t)
{
	unsigned int i;

	for (i = 0; i < trace.nr_vms; i++) {
		if (trace.vms[i].pid == t->pid)
			trace.vms[i].started = true;
	}
	free(t->session);
	t->session = NULL;
	t->request = 0;
}

static bool is_stop_signal(int sig)
{
	return sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN ||
	       sig == SIGTTOU;
}

static void handle_stop(pid_t tid, int status)
{
	struct thread *t = find_thread(tid);
	int event = status >> 16, sig = WSTOPSIG(status);

	if (sig == (SIGTRAP | 0x80)) {
		syscall_stop(t);
		/* The table may have moved, the thread has not. */
		xptrace(PTRACE_SYSCALL, tid, 0, 0);
	} else if (event == PTRACE_EVENT_STOP && is_stop_signal(sig)) {
		xptrace(PTRACE_LISTEN, tid, 0, 0);
	} else {
		if (event == PTRACE_EVENT_EXEC)
			program_starts(t);
		/* A handler may come back to the stub. */
		if (!event && t->session)
			t->session->keep_slot = true;
		xptrace(PTRACE_SYSCALL, tid, 0, event ? 0 : sig);
	}
}

static void trace_all(void)
{
	int status;
	pid_t tid;

	while ((tid = waitpid(-1, &status, __WALL)) > 0) {
		if (WIFSTOPPED(status))
			handle_stop(tid, status);
		else
			drop_thread(find_thread(tid));
	}
}

/* The helper keeps stderr and nothing else of the VMM's. */
static void close_files(int keep)
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, 0);
	dup2(null, 1);
	dup2(keep, 3);
	syscall(__NR_close_range, 4, ~0U, 0);
}

static void helper(pid_t pid, int ready)
{
	char status = ST_OK;
	sigset_t all;

	setsid();
	close_files(ready);
	/* Ends by itself; and see wait_stop() for SIGCHLD. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	signal(SIGCHLD, SIG_DFL);

	if (xptrace(PTRACE_SEIZE, pid, 0, TRACE_OPTIONS))
		status = explain_permission(pid, errno);
	if (write(3, &status, 1) != 1 || status)
		_exit(status);
	close(3);
	trace_all();
	_exit(ST_OK);
}

/* Starts the helper and waits until it traces us. */
static int start_helper(void)
{
	pid_t self = getpid(), child;
	char status = ST_FAILED;
	int ready[2], ignored;

	if (pipe2(ready, O_CLOEXEC))
		return fail(ST_FAILED, "pipe: %s", strerror(errno));
	/* Where Yama lets processes trace only their descendants. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);

	child = fork();
	if (child < 0)
		return fail(ST_FAILED, "fork: %s", strerror(errno));
	if (!child) {
		close(ready[0]);
		/* Not a child of the VMM, who may wait for any child. */
		if (!fork())
			helper(self, ready[1]);
		_exit(0);
	}
	close(ready[1]);
	while (waitpid(child, &ignored, 0) < 0 && errno == EINTR)
		;
	while (read(ready[0], &status, 1) < 0 && errno == EINTR)
		;
	close(ready[0]);
	prctl(PR_SET_PTRACER, 0);

	return status;
}

static int check_host(const struct window *w)
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	struct host host;
	char a[24], b[24];

	host_read(&host);
	if (!host.kvm)
		return fail(ST_NO_KVM, "this host has no KVM (/dev/kvm: %s)",
			    strerror(host.error));
	if (!host.max)
		return fail(ST_NO_CAP, "this kernel's KVM has no auto-prefault");
	if (w->exact && w->size && host.max > 0 &&
	    (w->size & (w->size - 1) || w->size < 2 * page ||
	     w->size > (uint64_t)host.max))
		return fail(ST_VALUE, "a window of %s is refused, it has to be a power of two from two pages to %s",
			    size_name(w->size, a), size_name(host.max, b));

	return ST_OK;
}

int cmd_run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "size", required_argument, NULL, 's' },
		{ "fixed", no_argument, NULL, 'f' },
		{ "verbose", no_argument, NULL, 'v' },
		{ }
	};
	struct window *w = &trace.window;
	int c, r;

	w->size = SIZE_DEFAULT;
	while ((c = getopt_long(argc, argv, "+s:fv", options, NULL)) != -1) {
		switch (c) {
		case 's':
			if (!parse_window(optarg, w))
				return fail(ST_USAGE, "--size needs a size like 2M or off, not '%s'",
					    optarg);
			break;
		case 'f':
			w->fixed = true;
			break;
		case 'v':
			trace.verbose = true;
			break;
		default:
			return ST_USAGE;
		}
	}
	if (optind == argc)
		return fail(ST_USAGE, "usage: kvm-prefault run [--size SIZE] [--fixed] [--verbose] -- VMM [ARG]...");

	r = check_host(w);
	if (!r)
		r = start_helper();
	if (r)
		return r;

	execvp(argv[optind], argv + optind);
	r = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
	return fail(r, "%s: %s", argv[optind], strerror(errno));
}
