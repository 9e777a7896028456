/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Runs system calls in another process, see inject.c.
 */
#ifndef KVM_PREFAULT_INJECT_H
#define KVM_PREFAULT_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kvm-prefault.h"

/* What a thread does when it goes on after the stop that it is in. */
enum resume {
	RESUME_NOT_HERE,	/* it is not where a system call ends */
	RESUME_RETURN,		/* the call returns */
	RESUME_RESTART,		/* the call is made again */
	RESUME_UNLESS_SIGNAL,	/* the same, unless a signal handler runs */
};

/* Room for the end of a stub that is too far away, the thread's number included. */
#define HOP_SIZE	32

#if defined(__x86_64__)
#include "arch-x86.h"
#elif defined(__aarch64__)
#include "arch-arm64.h"
#elif defined(__riscv) && __riscv_xlen == 64
#include "arch-riscv.h"
#else
#error "kvm-prefault has no port to this architecture"
#endif

/*
 * Argument of a call, copied to the target: struct kvm_enable_cap without its
 * padding.  KVM copies that as well, without a look at it, and gets what follows,
 * the stub: room is scarce.
 */
#define STUB_ARG_MAX	40

/* What is put into the target: this, the argument, and the port's stub. */
struct stub_head {
	uint64_t magic;
	uint64_t tid;
};

#define STUB_MAGIC	0x31746c7561666570ULL
#define SLOT_SIZE	(sizeof(struct stub_head) + STUB_ARG_MAX + STUB_SIZE)

enum stop {
	STOP_NONE,	/* it runs */
	STOP_EVENT,	/* PTRACE_INTERRUPT */
	STOP_EXIT,	/* the end of a system call */
	STOP_ENTRY,	/* the start of one */
};

struct session {
	pid_t pid;
	pid_t tid;
	enum stop stop;
	/* Registers with which the thread continues as if nothing had been. */
	struct arch_regs resume;
	enum resume how;
	/* It has not left that stop since. */
	bool fresh;
	uintptr_t slot;
	unsigned char saved[SLOT_SIZE];
	/* The stub's end, where the stub itself is too far away; or 0. */
	uintptr_t hop;
	unsigned char saved_hop[HOP_SIZE];
	/* The thread to try last. */
	pid_t avoid;
	/* A signal handler may return into the slot: it must stay. */
	bool keep_slot;
};

static inline uintptr_t slot_stub(const struct session *s)
{
	return s->slot + sizeof(struct stub_head) + STUB_ARG_MAX;
}

static inline uintptr_t slot_arg(const struct session *s)
{
	return s->slot + sizeof(struct stub_head);
}

static inline bool in_slot(const struct session *s, uintptr_t pc)
{
	return (pc >= s->slot && pc - s->slot < SLOT_SIZE) ||
	       (s->hop && pc >= s->hop && pc - s->hop < HOP_SIZE);
}

/* Tests look at every step through this; it is called before each request. */
extern void (*ptrace_hook)(void);
/* Tests choose the thread by this, if it is not 0. */
extern pid_t session_only_tid;
/* And make it take the long way back. */
extern bool session_far;
long xptrace(int request, pid_t tid, uintptr_t addr, uintptr_t data);

int wait_stop(pid_t tid, int *status, int timeout_ms);

int session_open(struct session *s, pid_t pid);
void session_close(struct session *s);

int session_prepare(struct session *s);
int session_ioctl(struct session *s, int fd, unsigned long request,
		  const void *arg, size_t len, unsigned long value,
		  long *result);
int session_ioctl_fd(struct session *s, int fd, unsigned long request,
		     int *local_fd);
void session_forget_slot(struct session *s);

#endif
