// SPDX-License-Identifier: GPL-2.0
/* What /proc tells about a process. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "kvm-prefault.h"

#define VM_NAME		"anon_inode:kvm-vm"
#define CAP_SYS_PTRACE	19

/* The value of a field of /proc/PID/task/TID/status. */
bool status_field(pid_t pid, pid_t tid, const char *field, char *buf, size_t len)
{
	char path[64], line[LINE_LEN];
	size_t n = strlen(field);
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		found = !strncmp(line, field, n) && line[n] == ':';
		if (found) {
			line[strcspn(line, "\n")] = '\0';
			n++;
			n += strspn(line + n, "\t ");
			snprintf(buf, len, "%s", line + n);
		}
	}
	fclose(f);

	return found;
}

long status_number(pid_t pid, pid_t tid, const char *field)
{
	char buf[64];

	return status_field(pid, tid, field, buf, sizeof(buf)) ? atol(buf) : -1;
}

/* Calls @fn for each descriptor until it returns something else than 0. */
int walk_fds(pid_t pid, fd_fn fn, void *ctx)
{
	char path[64], name[LINE_LEN];
	struct dirent *d;
	ssize_t len;
	DIR *dir;
	int r = ST_OK;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? fail(ST_NO_PROCESS, "no process %d", pid) :
		       explain_permission(pid, errno);
	while (!r && (d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		len = readlinkat(dirfd(dir), d->d_name, name, sizeof(name) - 1);
		/* Listing the folder needs less permission than this. */
		if (len < 0 && errno == EACCES)
			r = explain_permission(pid, errno);
		if (len < 0)
			continue;
		name[len] = '\0';
		r = fn(ctx, atoi(d->d_name), name);
	}
	closedir(dir);

	return r;
}

bool fd_is_vm(pid_t pid, int fd)
{
	char path[64], name[32];
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	len = readlink(path, name, sizeof(name) - 1);
	/* Not ours to see, but there. */
	if (len < 0)
		return errno == EACCES;
	name[len] = '\0';

	return !strcmp(name, VM_NAME);
}

/* Also takes a thread's number and makes it the process's. */
int check_process(pid_t *pid)
{
	long tgid = status_number(*pid, *pid, "Tgid"), tracer;

	if (tgid <= 0)
		return fail(ST_NO_PROCESS, "no process %d", *pid);
	if (tgid == getpid())
		return fail(ST_NO_KVM, "process %d is this tool", *pid);
	*pid = tgid;
	tracer = status_number(tgid, tgid, "TracerPid");
	if (tracer > 0)
		return fail(ST_BUSY, "process %d is traced by process %ld", *pid,
			    tracer);

	return ST_OK;
}

/*
 * One tool at a time for each process: two would use the same bytes of it.  The
 * lock is the process's folder, and goes when we go.
 */
int lock_process(pid_t pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? fail(ST_NO_PROCESS, "no process %d", pid) :
		       explain_permission(pid, errno);
	if (flock(fd, LOCK_EX | LOCK_NB))
		return fail(ST_BUSY, "another kvm-prefault works on process %d",
			    pid);

	return ST_OK;
}

static int read_ptrace_scope(void)
{
	int scope = -1;
	FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");

	if (f) {
		if (fscanf(f, "%d", &scope) != 1)
			scope = -1;
		fclose(f);
	}

	return scope;
}

static bool have_sys_ptrace(void)
{
	char buf[32];

	return status_field(getpid(), getpid(), "CapEff", buf, sizeof(buf)) &&
	       strtoull(buf, NULL, 16) >> CAP_SYS_PTRACE & 1;
}

static long uid_of(pid_t pid)
{
	return status_number(pid, pid, "Uid");
}

/* Says which permission is missing. */
int explain_permission(pid_t pid, int error)
{
	int scope = read_ptrace_scope();
	long tracer = status_number(pid, pid, "TracerPid");

	if (error != EPERM && error != EACCES)
		return fail(ST_FAILED, "process %d: %s", pid, strerror(error));
	if (tracer > 0)
		return fail(ST_BUSY, "process %d is traced by process %ld", pid,
			    tracer);
	if (scope == 3)
		return fail(ST_PERMISSION, "not permitted: sysctl kernel.yama.ptrace_scope is 3, which nothing overrides until the next boot");
	if (have_sys_ptrace())
		return fail(ST_PERMISSION, "not permitted: process %d is in another user namespace, or a security module protects it",
			    pid);
	if (uid_of(pid) != (long)getuid())
		return fail(ST_PERMISSION, "not permitted: process %d has another user, CAP_SYS_PTRACE is needed",
			    pid);
	if (scope > 0)
		return fail(ST_PERMISSION, "not permitted: sysctl kernel.yama.ptrace_scope is %d, CAP_SYS_PTRACE is needed",
			    scope);

	return fail(ST_PERMISSION, "not permitted: process %d has changed its privileges (it is not dumpable), CAP_SYS_PTRACE is needed",
		    pid);
}
