/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kvm-prefault: what its parts share.
 *
 * Functions that can fail return an exit status of the tool: ST_OK, or another
 * one after having said in one line on stderr what is wrong.
 */
#ifndef KVM_PREFAULT_TOOL_H
#define KVM_PREFAULT_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <linux/kvm.h>

/* For kernel headers that do not have it; those that do must agree. */
#define PREFAULT_CAP_NUMBER	700001
#ifndef KVM_CAP_AUTO_PREFAULT
#define KVM_CAP_AUTO_PREFAULT	PREFAULT_CAP_NUMBER
#endif
_Static_assert(KVM_CAP_AUTO_PREFAULT == PREFAULT_CAP_NUMBER, "another number");
#ifndef KVM_AUTO_PREFAULT_FIXED
#define KVM_AUTO_PREFAULT_FIXED	(1ULL << 0)
#endif

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define SIZE_DEFAULT	(2ULL << 20)
#define LINE_LEN	512

enum status {
	ST_OK		= 0,
	ST_FAILED	= 1,	/* anything that has no status of its own */
	ST_USAGE	= 2,
	ST_NO_PROCESS	= 3,
	ST_NO_KVM	= 4,	/* no KVM here, or the process does not use it */
	ST_PERMISSION	= 5,
	ST_NO_CAP	= 6,	/* kernel without the capability */
	ST_VALUE	= 7,	/* the window is refused */
	ST_VM_TYPE	= 8,	/* this VM cannot prefault */
	ST_SECCOMP	= 9,	/* a filter would kill the thread */
	ST_BUSY		= 10,	/* stopped, traced, or no thread to be had */
};

/* What to negotiate.  Without "exact" the size is cut to the VM's maximum. */
struct window {
	uint64_t size;
	bool fixed;
	bool exact;
};

/* util.c */
int fail(enum status status, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool parse_number(const char *s, long min, long max, long *value);
bool parse_size(const char *s, uint64_t *size);
const char *size_name(uint64_t size, char buf[24]);

/* proc.c: what /proc tells about a process */
typedef int (*fd_fn)(void *ctx, int fd, const char *name);
int walk_fds(pid_t pid, fd_fn fn, void *ctx);
bool fd_is_vm(pid_t pid, int fd);
bool status_field(pid_t pid, pid_t tid, const char *field, char *buf, size_t len);
long status_number(pid_t pid, pid_t tid, const char *field);
int check_process(pid_t *pid);
int lock_process(pid_t pid);
int explain_permission(pid_t pid, int error);

/* probe.c */
struct host {
	bool kvm;		/* /dev/kvm is there */
	int error;		/* why it cannot be opened, or 0 */
	bool has_module_param;
	uint64_t module_default;
	long max;		/* 0: no capability; -1: not known */
};

void host_read(struct host *host);
int cmd_probe(int argc, char **argv);

/* set.c */
struct session;
int enable_vm(struct session *s, int vm_fd, const struct window *w,
	      uint64_t *given);
int cmd_set(int argc, char **argv);
bool parse_window(const char *s, struct window *w);

/* run.c, stat.c */
int cmd_run(int argc, char **argv);
int cmd_stat(int argc, char **argv);

#endif
