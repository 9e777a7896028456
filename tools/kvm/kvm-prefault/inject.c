// SPDX-License-Identifier: GPL-2.0
/*
 * Run system calls in another process, which must not notice, whenever this
 * one dies.
 *
 * A thread that sits in a ptrace stop is made to run a small stub that does the
 * call, restores the registers by itself, and jumps to where the thread would
 * have gone anyway.  The stub is in place with everything that it needs, the
 * argument and the registers to restore included, before the one
 * PTRACE_SETREGSET that redirects the thread.  So there are only two states:
 *
 *   before it	the thread's registers are its own; some bytes that nobody uses
 *		have changed
 *   after it	the thread finds its way back alone
 *
 * and in both the kernel may let go of the thread because its tracer is gone.
 * This includes a system call that the stop has interrupted: the registers that
 * the stub restores are those with which the kernel would have restarted it.
 *
 * The way back needs a register on some architectures, unless it is short.  Where
 * the stub is too far away a second, tiny piece of code is put within reach.
 *
 * Space for the stub is what is left over in the last page of an executable
 * segment, behind what its ELF header says belongs to it.  A write by ptrace
 * makes this a private page of the process.
 *
 * The stub starts only where a system call ends (or is about to be restarted).
 * There it needs no more than a handful of registers: the vector state that
 * calls may drop is gone already, no restartable sequence is active, and there
 * is no red zone to care about as no stack is used.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvm-prefault.h"
#include "inject.h"

#define WORD		sizeof(long)

/* For a thread to reach the stop that was asked for. */
#define STOP_MS		2000
/* For a thread in user mode to come to a system call by itself. */
#define CALL_MS		100
/* Stops at which a thread may turn out to be in the wrong place. */
#define STOPS		12
/* For all threads of a process to be tried. */
#define TRIES		20
#define TRY_PAUSE_US	20000

/* Where a function looks further if this thread or place will not do. */
#define UNSUITABLE	(-1)
#define TIMED_OUT	(-2)

void (*ptrace_hook)(void);
pid_t session_only_tid;
bool session_far;

long xptrace(int request, pid_t tid, uintptr_t addr, uintptr_t data)
{
	if (ptrace_hook)
		ptrace_hook();

	return ptrace(request, tid, addr, data);
}

static int gone(pid_t tid)
{
	return fail(ST_NO_PROCESS, "thread %d is gone", tid);
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * Waits for the next stop of a thread.  SIGCHLD is blocked, so that none is
 * missed between looking and sleeping.
 */
int wait_stop(pid_t tid, int *status, int timeout_ms)
{
	long end = now_ms() + timeout_ms, left;
	struct timespec ts;
	sigset_t set;
	pid_t pid;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (;;) {
		pid = waitpid(tid, status, __WALL | WNOHANG);
		if (pid < 0 || (pid > 0 && !WIFSTOPPED(*status)))
			return ST_NO_PROCESS;
		if (pid > 0)
			return ST_OK;
		left = end - now_ms();
		if (left <= 0)
			return TIMED_OUT;
		ts.tv_sec = left / 1000;
		ts.tv_nsec = left % 1000 * 1000000;
		sigtimedwait(&set, NULL, &ts);
	}
}

/* Registers and memory of the target */

static int get_regs(struct session *s, struct arch_regs *regs)
{
	struct iovec iov = { .iov_base = regs, .iov_len = sizeof(*regs) };

	if (xptrace(PTRACE_GETREGSET, s->tid, NT_PRSTATUS, (uintptr_t)&iov))
		return gone(s->tid);
	if (iov.iov_len != sizeof(*regs))
		return fail(ST_FAILED, "process %d is not a 64-bit process",
			    s->pid);

	return ST_OK;
}

static int set_regs(struct session *s, struct arch_regs *regs)
{
	struct iovec iov = { .iov_base = regs, .iov_len = sizeof(*regs) };

	if (xptrace(PTRACE_SETREGSET, s->tid, NT_PRSTATUS, (uintptr_t)&iov))
		return gone(s->tid);

	return ST_OK;
}

static bool peek(struct session *s, uintptr_t addr, void *buf, size_t len)
{
	size_t i;
	long word;

	for (i = 0; i < len; i += WORD) {
		errno = 0;
		word = xptrace(PTRACE_PEEKDATA, s->tid, addr + i, 0);
		if (errno)
			return false;
		memcpy((char *)buf + i, &word,
		       len - i < WORD ? len - i : WORD);
	}

	return true;
}

/* @len is a multiple of the word size. */
static bool poke(struct session *s, uintptr_t addr, const void *buf, size_t len)
{
	size_t i;
	long word;

	for (i = 0; i < len; i += WORD) {
		memcpy(&word, (const char *)buf + i, WORD);
		if (xptrace(PTRACE_POKEDATA, s->tid, addr + i, word))
			return false;
	}

	return true;
}

/* Places for the stub */

struct mapping {
	uintptr_t start, end;
	unsigned long offset, inode;
	char perms[8], dev[16], name[32];
};

/* Slots are from start to end, and there is room for a hop at end. */
struct space {
	uintptr_t start, end;
};

static bool parse_mapping(const char *line, struct mapping *m)
{
	m->name[0] = '\0';
	return sscanf(line, "%lx-%lx %7s %lx %15s %lu %31s", &m->start, &m->end,
		      m->perms, &m->offset, m->dev, &m->inode, m->name) >= 6;
}

static bool same_file(const struct mapping *a, const struct mapping *b)
{
	return a->inode == b->inode && !strcmp(a->dev, b->dev);
}

/*
 * Where in @m the segment ends that is mapped there; 0 if that is not clear.
 * @base is where the file's start is mapped.
 */
static uintptr_t segment_end(struct session *s, uintptr_t base,
			     const struct mapping *m)
{
	unsigned long page = sysconf(_SC_PAGESIZE);
	Elf64_Ehdr ehdr;
	Elf64_Phdr phdr;
	uintptr_t end;
	int i;

	if (!peek(s, base, &ehdr, sizeof(ehdr)) ||
	    memcmp(ehdr.e_ident, ELFMAG, SELFMAG) ||
	    ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr.e_phentsize != sizeof(phdr))
		return 0;

	for (i = 0; i < ehdr.e_phnum; i++) {
		if (!peek(s, base + ehdr.e_phoff + i * sizeof(phdr), &phdr,
			  sizeof(phdr)))
			return 0;
		if (phdr.p_type != PT_LOAD || !(phdr.p_flags & PF_X) ||
		    phdr.p_memsz != phdr.p_filesz ||
		    phdr.p_offset + phdr.p_filesz < m->offset)
			continue;
		end = m->start + phdr.p_offset + phdr.p_filesz - m->offset;
		if (end > m->start && end < m->end && m->end - end < page)
			return end;
	}

	return 0;
}

/* A write by ptrace makes a private copy of private mappings only. */
static bool may_hold_stub(const struct mapping *m)
{
	return m->perms[0] == 'r' && m->perms[2] == 'x' && m->perms[3] == 'p' &&
	       (m->inode || !strcmp(m->name, "[vdso]"));
}

/*
 * All spaces, the best one first: the mapping that the thread returns to will
 * not vanish, the vDSO is for programs that have nothing else.  It has its section
 * headers there, which only debuggers read.
 */
static unsigned int find_spaces(struct session *s, struct space *spaces,
				unsigned int max)
{
	uintptr_t pc = arch_pc(&s->resume), end;
	struct mapping m, first = { .inode = 0 };
	char path[64], line[LINE_LEN];
	unsigned int n = 0;
	struct space space;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", s->pid);
	f = fopen(path, "re");
	if (!f)
		return 0;

	while (n < max && fgets(line, sizeof(line), f)) {
		if (!parse_mapping(line, &m))
			continue;
		if (!m.offset)
			first = m;
		if (!may_hold_stub(&m) || !same_file(&m, &first))
			continue;
		end = segment_end(s, first.start, &m);
		if (!end)
			continue;
		space.start = (end + 15) & ~15UL;
		space.end = m.end - HOP_SIZE;
		if (space.start > space.end)
			continue;
		spaces[n] = space;
		if (pc >= m.start && pc < m.end) {
			spaces[n] = spaces[0];
			spaces[0] = space;
		}
		n++;
	}
	fclose(f);

	return n;
}

struct spaces {
	struct space list[64];
	unsigned int n;
};

static bool in_spaces(const struct spaces *spaces, uintptr_t pc)
{
	unsigned int i;

	for (i = 0; i < spaces->n; i++) {
		if (pc >= spaces->list[i].start &&
		    pc < spaces->list[i].end + HOP_SIZE)
			return true;
	}

	return false;
}

/*
 * Is the thread for which a dead tool has left a stub or hop out of it?  It has
 * had to run a few instructions since then, so anything else is unlikely.
 */
static bool is_left_over(struct session *s, const struct spaces *spaces,
			 pid_t tid)
{
	char path[64], line[LINE_LEN];
	bool out = false;
	char *p;
	FILE *f;

	if (tid == s->tid)
		return true;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", s->pid, tid);
	f = fopen(path, "re");
	if (!f)
		return true;
	/* The last number is the program counter; "running" is no number. */
	if (fgets(line, sizeof(line), f)) {
		p = strrchr(line, ' ');
		out = p && !in_spaces(spaces, strtoul(p, NULL, 0));
	}
	fclose(f);

	return out;
}

/* @again: also where an earlier stub was left. */
static bool slot_usable(struct session *s, const struct spaces *spaces,
			uintptr_t slot, bool again)
{
	struct stub_head head;

	if (!s->hop && !arch_reaches(slot, arch_pc(&s->resume)))
		return false;
	if (!peek(s, slot, s->saved, SLOT_SIZE))
		return false;

	memcpy(&head, s->saved, sizeof(head));
	if (head.magic == STUB_MAGIC) {
		memset(s->saved, 0, SLOT_SIZE);
		return again && is_left_over(s, spaces, head.tid);
	}

	return !again;
}

/* A hop has the thread's number at its end. */
static bool hop_usable(struct session *s, const struct spaces *spaces,
		       const struct space *space)
{
	unsigned char ours[HOP_SIZE] = {};
	uint64_t tid;

	if (!arch_reaches(space->end, arch_pc(&s->resume)) ||
	    !peek(s, space->end, s->saved_hop, HOP_SIZE))
		return false;

	arch_hop(ours, space->end, &s->resume);
	if (memcmp(ours, s->saved_hop, 2 * sizeof(uint32_t)))
		return true;

	memcpy(&tid, s->saved_hop + HOP_SIZE - sizeof(tid), sizeof(tid));
	memset(s->saved_hop, 0, HOP_SIZE);
	return is_left_over(s, spaces, tid);
}

static void find_hop(struct session *s, const struct spaces *spaces)
{
	unsigned int i;

	s->hop = 0;
	for (i = 0; ARCH_NEEDS_HOP && i < spaces->n; i++) {
		if (!hop_usable(s, spaces, &spaces->list[i]))
			continue;
		s->hop = spaces->list[i].end;
		break;
	}
}

static bool find_slot_in(struct session *s, const struct spaces *spaces,
			 const struct space *space, bool again)
{
	uintptr_t slot;

	for (slot = space->start; slot + SLOT_SIZE <= space->end;
	     slot += (SLOT_SIZE + 15) & ~15UL) {
		if (!slot_usable(s, spaces, slot, again))
			continue;
		s->slot = slot;
		if (!session_far && arch_reaches(slot, arch_pc(&s->resume)))
			s->hop = 0;
		return true;
	}

	return false;
}

static int find_slot(struct session *s)
{
	struct spaces spaces;
	unsigned int i, again;

	spaces.n = find_spaces(s, spaces.list, ARRAY_SIZE(spaces.list));
	/* In the stub of a tool that has just been killed: it has to leave first. */
	if (in_spaces(&spaces, arch_pc(&s->resume)))
		return UNSUITABLE;

	find_hop(s, &spaces);
	for (again = 0; again < 2; again++) {
		for (i = 0; i < spaces.n; i++) {
			if (find_slot_in(s, &spaces, &spaces.list[i], again))
				return ST_OK;
		}
	}

	return fail(ST_BUSY, "process %d has no room for the call, or none near thread %d",
		    s->pid, s->tid);
}

static bool write_hop(struct session *s)
{
	const uint64_t tid = s->tid;
	unsigned char hop[HOP_SIZE] = {};

	arch_hop(hop, s->hop, &s->resume);
	memcpy(hop + HOP_SIZE - sizeof(tid), &tid, sizeof(tid));

	return poke(s, s->hop, hop, HOP_SIZE);
}

static bool write_stub(struct session *s)
{
	const struct stub_head head = { .magic = STUB_MAGIC, .tid = s->tid };
	unsigned char stub[STUB_SIZE];

	if (s->hop && !write_hop(s))
		return false;
	arch_stub(stub, slot_stub(s), s->hop, &s->resume);

	return poke(s, s->slot, &head, sizeof(head)) &&
	       poke(s, slot_stub(s), stub, sizeof(stub));
}

/*
 * Puts the stub in place for a thread that is in an event or exit stop.
 * UNSUITABLE if the thread is not where a system call ends.
 */
int session_prepare(struct session *s)
{
	unsigned char code[16];
	int r;

	s->slot = 0;
	s->hop = 0;
	s->keep_slot = false;
	r = get_regs(s, &s->resume);
	if (r)
		return r;

	memset(code, 0, sizeof(code));
	if (!peek(s, arch_pc(&s->resume) - 8, code, sizeof(code)))
		return UNSUITABLE;
	s->how = arch_resume(&s->resume, code + 8, s->stop == STOP_EVENT);
	s->fresh = true;
	if (s->how == RESUME_NOT_HERE)
		return UNSUITABLE;

	r = find_slot(s);
	if (r)
		return r;

	return write_stub(s) ? ST_OK : gone(s->tid);
}

/* The stub is no longer needed, and no thread is in it. */
void session_forget_slot(struct session *s)
{
	if (s->slot && !s->keep_slot) {
		poke(s, s->slot, s->saved, SLOT_SIZE);
		if (s->hop)
			poke(s, s->hop, s->saved_hop, HOP_SIZE);
	}
	s->slot = 0;
	s->hop = 0;
}

/*
 * A handler is about to run where it would have ended the interrupted call with
 * EINTR.  sigsuspend() and its like depend on that, so let it have its way: the
 * thread leaves without having run the stub.
 */
static int yield_to_handler(struct session *s, int sig)
{
	struct arch_regs regs = s->resume;
	int r;

	arch_return_eintr(&regs);
	r = set_regs(s, &regs);
	if (r)
		return r;
	s->keep_slot = false;
	session_forget_slot(s);
	xptrace(PTRACE_DETACH, s->tid, 0, sig);
	s->stop = STOP_NONE;

	return UNSUITABLE;
}

/* What kind of stop a thread is in that is not about to get a signal. */
static int classify_stop(struct session *s, struct __ptrace_syscall_info *info)
{
	if (xptrace(PTRACE_GET_SYSCALL_INFO, s->tid, sizeof(*info),
		    (uintptr_t)info) <= 0)
		return gone(s->tid);
	s->stop = info->op == PTRACE_SYSCALL_INFO_ENTRY ? STOP_ENTRY :
		  info->op == PTRACE_SYSCALL_INFO_EXIT ? STOP_EXIT : STOP_EVENT;

	return ST_OK;
}

static int stopped_by_signal(struct session *s)
{
	s->stop = STOP_EVENT;
	s->keep_slot = true;

	return fail(ST_BUSY, "process %d is stopped, continue it first", s->pid);
}

/*
 * Lets the thread run to its next stop.  Signals reach it as ever; a handler may
 * then be in between it and the stub for any time.
 */
static int next_stop(struct session *s, int timeout_ms,
		     struct __ptrace_syscall_info *info)
{
	int r, status, event, sig = 0;

	for (;;) {
		if (xptrace(PTRACE_SYSCALL, s->tid, 0, sig))
			return gone(s->tid);
		s->stop = STOP_NONE;
		r = wait_stop(s->tid, &status, timeout_ms);
		if (r)
			return r == TIMED_OUT ? r : gone(s->tid);

		event = status >> 16;
		sig = WSTOPSIG(status);
		if (event == PTRACE_EVENT_STOP && sig != SIGTRAP)
			return stopped_by_signal(s);
		if (event == PTRACE_EVENT_STOP || sig == (SIGTRAP | 0x80))
			break;
		if (event) {
			sig = 0;
			continue;
		}
		s->keep_slot = true;
		if (s->fresh && s->slot && s->how == RESUME_UNLESS_SIGNAL)
			return yield_to_handler(s, sig);
	}
	s->fresh = false;

	return classify_stop(s, info);
}

/*
 * Stops a running thread.  Whatever stop comes first will do, and takes the
 * request with it; a signal is passed on, and the request made again.
 */
static int interrupt(struct session *s, struct __ptrace_syscall_info *info)
{
	int r, status, event, sig = 0;

	for (;;) {
		if (xptrace(PTRACE_INTERRUPT, s->tid, 0, 0) ||
		    (sig && xptrace(PTRACE_CONT, s->tid, 0, sig)))
			return UNSUITABLE;
		s->stop = STOP_NONE;
		r = wait_stop(s->tid, &status, STOP_MS);
		if (r == TIMED_OUT)
			return fail(ST_BUSY, "thread %d does not stop", s->tid);
		if (r)
			return UNSUITABLE;
		event = status >> 16;
		sig = WSTOPSIG(status);
		if (event == PTRACE_EVENT_STOP && sig != SIGTRAP)
			return stopped_by_signal(s);
		if (event || sig == (SIGTRAP | 0x80))
			return classify_stop(s, info);
		s->keep_slot = true;
	}
}

/* Runs to the end of the next call that the stub makes. */
static int finish_call(struct session *s, long *result)
{
	struct __ptrace_syscall_info info;
	bool entered = false, ends;
	int r;

	for (;;) {
		r = next_stop(s, STOP_MS, &info);
		if (r == TIMED_OUT)
			return fail(ST_BUSY, "thread %d does not come back from the call",
				    s->tid);
		if (r)
			return r;
		/* The end of a handler's sigreturn may look like ours. */
		ends = entered && s->stop == STOP_EXIT;
		entered = s->stop == STOP_ENTRY &&
			  in_slot(s, info.instruction_pointer);
		if (!ends)
			continue;
		*result = info.exit.rval;
		/* The kernel restarts it. */
		if (*result <= -ERESTARTSYS && *result >= -ERESTART_RESTARTBLOCK)
			continue;
		return ST_OK;
	}
}

static int start_call(struct session *s, unsigned int entry, int fd,
		      unsigned long request, unsigned long value)
{
	struct arch_regs regs = s->resume;

	arch_set_call(&regs, slot_stub(s) + entry, __NR_ioctl, fd, request,
		      value);
	return set_regs(s, &regs);
}

/* Is a signal about to run a handler? */
static bool signal_waits(struct session *s)
{
	static const char * const fields[] = {
		"SigPnd:", "ShdPnd:", "SigBlk:", "SigCgt:",
	};
	unsigned long set[ARRAY_SIZE(fields)] = {};
	unsigned int i;
	char path[64], line[LINE_LEN];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", s->pid, s->tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		for (i = 0; i < ARRAY_SIZE(fields); i++) {
			if (!strncmp(line, fields[i], strlen(fields[i])))
				set[i] = strtoul(line + strlen(fields[i]), NULL, 16);
		}
	}
	if (f)
		fclose(f);

	return (set[0] | set[1]) & ~set[2] & set[3];
}

/* Another thread, if there is one: this one has signals to handle. */
static int reopen(struct session *s)
{
	s->avoid = s->tid;
	return session_open(s, s->pid);
}

/* An ioctl, and what came of it. */
struct call {
	int fd;
	unsigned long request;
	/* An input that the ioctl gets a pointer to; NULL: it gets value. */
	const void *arg;
	size_t len;
	unsigned long value;
	/* If set, the ioctl's result is a descriptor, to be brought here. */
	int *local_fd;
	long result;
};

static int fetch_fd(struct session *s, int fd)
{
	int pidfd, local;

	pidfd = syscall(__NR_pidfd_open, s->pid, 0);
	if (pidfd < 0)
		return -1;
	local = syscall(__NR_pidfd_getfd, pidfd, fd, 0);
	close(pidfd);

	return local;
}

/* The stub closes it in the target, whether or not we are still there. */
static int fetch_result(struct session *s, const struct call *c)
{
	long closed;

	*c->local_fd = c->result < 0 ? c->result : fetch_fd(s, c->result);
	if (*c->local_fd == -1)
		*c->local_fd = -errno;

	return finish_call(s, &closed);
}

/* One try; UNSUITABLE: the thread has other things to do. */
static int try_call(struct session *s, struct call *c)
{
	unsigned char copy[STUB_ARG_MAX] = {};
	unsigned long value = c->value;
	int r;

	if (c->arg) {
		memcpy(copy, c->arg, c->len);
		if (!poke(s, slot_arg(s), copy, sizeof(copy)))
			return gone(s->tid);
		value = slot_arg(s);
	}
	if (s->fresh && s->stop == STOP_EVENT && signal_waits(s)) {
		session_close(s);
		return UNSUITABLE;
	}

	r = start_call(s, c->local_fd ? STUB_CALL_FD : STUB_CALL, c->fd,
		       c->request, value);
	if (r)
		return r;
	r = finish_call(s, &c->result);
	if (r || !c->local_fd)
		return r;

	return fetch_result(s, c);
}

static int session_call(struct session *s, struct call *c)
{
	int r, try;

	for (try = 0; try < TRIES; try++) {
		r = try_call(s, c);
		if (r != UNSUITABLE)
			return r;
		r = reopen(s);
		if (r)
			return r;
	}

	return fail(ST_BUSY, "process %d is busy with signals", s->pid);
}

/*
 * Runs an ioctl in the thread; @arg of @len bytes is an input that the ioctl
 * gets a pointer to; without that it gets @value.
 */
int session_ioctl(struct session *s, int fd, unsigned long request,
		  const void *arg, size_t len, unsigned long value,
		  long *result)
{
	struct call c = {
		.fd = fd, .request = request, .arg = arg, .len = len, .value = value,
	};
	int r = session_call(s, &c);

	if (r == ST_OK)
		*result = c.result;
	return r;
}

/* Runs an ioctl that returns a descriptor, and brings that descriptor here. */
int session_ioctl_fd(struct session *s, int fd, unsigned long request,
		     int *local_fd)
{
	struct call c = { .fd = fd, .request = request, .local_fd = local_fd };

	return session_call(s, &c);
}

/* Waits until the thread has left the stub. */
static int leave_stub(struct session *s)
{
	struct __ptrace_syscall_info info;
	int r;

	do {
		r = next_stop(s, CALL_MS, &info);
		/* It computes. */
		if (r == TIMED_OUT)
			r = interrupt(s, &info);
	} while (!r && in_slot(s, info.instruction_pointer));

	return r;
}

/* Lets go of the thread, wherever it is. */
void session_close(struct session *s)
{
	struct arch_regs regs;

	/* The rest of the stub, if the thread is in it. */
	if (s->slot && s->stop == STOP_EXIT && !get_regs(s, &regs) &&
	    in_slot(s, arch_pc(&regs)) && leave_stub(s))
		s->slot = 0;
	if (s->stop == STOP_NONE)
		return;

	session_forget_slot(s);
	xptrace(PTRACE_DETACH, s->tid, 0, 0);
	s->stop = STOP_NONE;
}

/* The choice of a thread */

struct candidate {
	pid_t tid;
	int rank;
};

/*
 * Calls that simply go on after an interruption are the best place.  Others
 * return EINTR: programs have to cope with that, but need not be made to.
 */
static int rank_call(const char *line)
{
	static const long restartable[] = {
#ifdef __NR_poll
		__NR_poll,
#endif
		__NR_read, __NR_readv, __NR_futex,
		__NR_accept, __NR_accept4, __NR_recvmsg, __NR_recvfrom,
		__NR_wait4, __NR_waitid, __NR_write,
	};
	static const long second[] = {
		__NR_nanosleep, __NR_clock_nanosleep, __NR_ppoll,
		__NR_pselect6,
	};
	unsigned int i;
	long nr;

	if (sscanf(line, "%ld", &nr) != 1 || nr < 0)
		return 4;
	for (i = 0; i < ARRAY_SIZE(restartable); i++) {
		if (nr == restartable[i])
			return 0;
	}
	for (i = 0; i < ARRAY_SIZE(second); i++) {
		if (nr == second[i])
			return 1;
	}

	return nr == __NR_ioctl ? 3 : 2;
}

static int rank_thread(pid_t pid, pid_t tid)
{
	char path[64], line[LINE_LEN];
	int rank = 4;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return rank;
	if (fgets(line, sizeof(line), f))
		rank = rank_call(line);
	fclose(f);

	return rank;
}

static int by_rank(const void *a, const void *b)
{
	return ((const struct candidate *)a)->rank -
	       ((const struct candidate *)b)->rank;
}

/* Threads that may run the call, the best ones first; counts those that may not. */
static int list_threads(pid_t pid, struct candidate *list, int max,
			int *filtered)
{
	char path[64];
	struct dirent *d;
	int n = 0;
	DIR *dir;

	*filtered = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir)
		return 0;
	while (n < max && (d = readdir(dir))) {
		list[n].tid = atoi(d->d_name);
		if (list[n].tid <= 0 ||
		    (session_only_tid && list[n].tid != session_only_tid))
			continue;
		if (status_number(pid, list[n].tid, "Seccomp") > 0) {
			++*filtered;
			continue;
		}
		list[n].rank = rank_thread(pid, list[n].tid);
		n++;
	}
	closedir(dir);
	qsort(list, n, sizeof(*list), by_rank);

	return n;
}

/* From anywhere to where a call ends; not all threads get there soon. */
static int prepare_anywhere(struct session *s)
{
	struct __ptrace_syscall_info info;
	int r, i;

	for (i = 0; i < STOPS; i++) {
		r = s->stop == STOP_ENTRY ? UNSUITABLE : session_prepare(s);
		if (r != UNSUITABLE)
			return r;
		r = next_stop(s, CALL_MS, &info);
		if (r == TIMED_OUT)
			r = interrupt(s, &info);
		if (r)
			return r;
	}

	return UNSUITABLE;
}

static int try_thread(struct session *s, pid_t tid, bool patient)
{
	struct __ptrace_syscall_info info;
	int r;

	s->tid = tid;
	s->slot = 0;
	s->stop = STOP_NONE;
	if (xptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACESYSGOOD))
		return errno == EPERM ? explain_permission(s->pid, errno) :
		       UNSUITABLE;

	r = interrupt(s, &info);
	if (!r && patient && signal_waits(s))
		r = UNSUITABLE;
	if (!r)
		r = prepare_anywhere(s);
	if (r)
		session_close(s);

	return r;
}

/*
 * Attaches to the thread of @pid that minds it least, and prepares it.  @s is
 * zeroed, or was open before.
 */
int session_open(struct session *s, pid_t pid)
{
	static struct candidate list[4096];
	int n, i, r, filtered, try;
	sigset_t chld;
	pid_t avoid;

	/* See wait_stop(). */
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	signal(SIGCHLD, SIG_DFL);

	avoid = s->avoid;
	memset(s, 0, sizeof(*s));
	s->pid = pid;
	for (try = 0; try < TRIES; try++) {
		n = list_threads(pid, list, ARRAY_SIZE(list), &filtered);
		if (!n && filtered)
			return fail(ST_SECCOMP, "process %d is under a seccomp filter, which might kill it; kvm-prefault run works, or the VMM's own call",
				    pid);
		if (!n)
			return fail(ST_NO_PROCESS, "no process %d", pid);
		for (i = 0; i < n; i++) {
			if (list[i].tid == avoid && n > 1 && try < TRIES / 2)
				continue;
			r = try_thread(s, list[i].tid, try < TRIES / 2);
			if (r != UNSUITABLE && r != TIMED_OUT)
				return r;
		}
		usleep(TRY_PAUSE_US);
	}

	return fail(ST_BUSY, "process %d has no thread that can be used now%s",
		    pid, filtered ? " (some are under seccomp filters)" : "");
}
