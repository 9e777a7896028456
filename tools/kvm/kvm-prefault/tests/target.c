// SPDX-License-Identifier: GPL-2.0
/*
 * A process that notices if somebody tampers with it: threads in system calls
 * of all kinds, each of which checks what comes back from the kernel and when.
 *
 * Prints one line, "PID PIPE FD REQUEST": an end of a pipe whose flags a test
 * may change, and a descriptor with a request that makes a new descriptor of
 * it.  Runs until SIGTERM; status 0 if nothing was wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW	_IO(0xAA, 0x00)
#endif
#define NS_GET_USERNS		_IO(0xb7, 0x1)

#define MS			1000000L

/* inject_test looks for the thread with this name. */
#define LONG_SLEEP		"long sleep"

/* Longer than this, and a time-out has begun anew again and again. */
#define LATE_MS			3000

static volatile sig_atomic_t stop;
static unsigned long progress[16];
static int pipes[4][2], epoll;

static void __attribute__((noreturn, format(printf, 1, 2)))
broken(const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fprintf(stderr, "target: %s\n", line);
	_exit(1);
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / MS;
}

static void check_time(const char *what, long start, long ms)
{
	long elapsed = now_ms() - start;

	if (elapsed < ms - 1 || elapsed > ms + LATE_MS)
		broken("%s of %ld ms took %ld ms", what, ms, elapsed);
}

static void sleep_once(void)
{
	struct timespec t = { .tv_nsec = 30 * MS };
	long start = now_ms();

	if (syscall(__NR_nanosleep, &t, NULL))
		broken("nanosleep: %s", strerror(errno));
	check_time("nanosleep", start, 30);
}

/* If it were begun anew by each of many interruptions, it would not end. */
static void long_sleep_once(void)
{
	struct timespec t = { .tv_sec = 1 };
	long start = now_ms();

	if (syscall(__NR_nanosleep, &t, NULL))
		broken("long nanosleep: %s", strerror(errno));
	check_time("long nanosleep", start, 1000);
}

static void futex_timed_once(void)
{
	struct timespec t = { .tv_nsec = 20 * MS };
	static uint32_t word;
	long start = now_ms();

	if (!syscall(__NR_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0) ||
	    errno != ETIMEDOUT)
		broken("timed futex: %s", strerror(errno));
	check_time("timed futex", start, 20);
}

static uint32_t ball;

static void futex_once(uint32_t me)
{
	uint32_t seen;

	while ((seen = __atomic_load_n(&ball, __ATOMIC_ACQUIRE)) % 2 != me) {
		if (syscall(__NR_futex, &ball, FUTEX_WAIT_PRIVATE, seen, NULL,
			    NULL, 0) && errno != EAGAIN)
			broken("futex: %s", strerror(errno));
		if (stop)
			return;
	}
	usleep(1000);
	__atomic_fetch_add(&ball, 1, __ATOMIC_RELEASE);
	syscall(__NR_futex, &ball, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void futex_ping(void)
{
	futex_once(0);
}

static void futex_pong(void)
{
	futex_once(1);
}

static void write_once(void)
{
	static uint64_t n;

	usleep(2000);
	n++;
	if (write(pipes[0][1], &n, sizeof(n)) != sizeof(n))
		broken("write: %s", strerror(errno));
}

static void read_once(void)
{
	static uint64_t expected;
	uint64_t n = 0;

	expected++;
	if (read(pipes[0][0], &n, sizeof(n)) != sizeof(n) || n != expected)
		broken("read %lu, expected %lu: %s", (unsigned long)n,
		       (unsigned long)expected, strerror(errno));
}

static void poll_once(void)
{
	struct pollfd p = { .fd = pipes[1][0], .events = POLLIN };
	long start = now_ms();

	if (poll(&p, 1, 25))
		broken("poll: %s", strerror(errno));
	check_time("poll", start, 25);
}

/* The kernel never restarts this one. */
static void epoll_once(void)
{
	struct epoll_event e;
	int r;

	r = epoll_wait(epoll, &e, 1, 25);
	if (r && (r > 0 || errno != EINTR))
		broken("epoll_wait: %d, %s", r, strerror(errno));
}

static volatile sig_atomic_t signals;

static void on_usr1(int sig)
{
	signals++;
}

/* A signal that is blocked except for the time in sigsuspend is never lost. */
static void signal_once(void)
{
	struct timespec t = { .tv_nsec = 5 * MS };
	sigset_t block, old;
	timer_t timer;
	struct itimerspec when = { .it_value = t };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL,
				  .sigev_signo = SIGUSR1 };
	sig_atomic_t before;

	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &block, &old);
	before = signals;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) ||
	    timer_settime(timer, 0, &when, NULL))
		broken("timer: %s", strerror(errno));
	sigdelset(&old, SIGUSR1);
	while (signals == before) {
		if (!sigsuspend(&old) || errno != EINTR)
			broken("sigsuspend: %s", strerror(errno));
	}
	timer_delete(timer);
}

/* All registers that a system call leaves alone, over one that sleeps. */
#if defined(__x86_64__)
static void regs_once(void)
{
	struct timespec t = { .tv_nsec = 3 * MS };
	/* Eight words to load, and eight that come back. */
	uint64_t words[16];
	register uint64_t r8 asm("r8") = 0x0808080808080808;
	register uint64_t r9 asm("r9") = 0x0909090909090909;
	register uint64_t r10 asm("r10") = 0x1010101010101010;
	register uint64_t r12 asm("r12") = 0x1212121212121212;
	register uint64_t r13 asm("r13") = 0x1313131313131313;
	register uint64_t r14 asm("r14") = 0x1414141414141414;
	register uint64_t r15 asm("r15") = 0x1515151515151515;
	uint64_t rdx = 0x2222222222222222, rsi = 0;
	void *rdi = &t;
	long rax = __NR_nanosleep;
	unsigned int i;

	for (i = 0; i < 16; i++)
		words[i] = (uint64_t)i << 56 | 0x123456789aULL * (i + 1);
	asm volatile("movdqu (%[words]), %%xmm0\n"
		     "movdqu 16(%[words]), %%xmm5\n"
		     "movdqu 32(%[words]), %%xmm15\n"
		     "stc\n"
		     "syscall\n"
		     "sbb %%rcx, %%rcx\n"
		     "mov %%rcx, 112(%[words])\n"
		     "movdqu %%xmm0, 64(%[words])\n"
		     "movdqu %%xmm5, 80(%[words])\n"
		     "movdqu %%xmm15, 96(%[words])\n"
		     : "+a"(rax), "+D"(rdi), "+S"(rsi), "+d"(rdx), "+r"(r8),
		       "+r"(r9), "+r"(r10), "+r"(r12), "+r"(r13), "+r"(r14),
		       "+r"(r15)
		     : [words] "b"(words), "m"(t)
		     : "rcx", "r11", "xmm0", "xmm5", "xmm15", "memory", "cc");
	if (rax || rdi != &t || rsi || rdx != 0x2222222222222222 ||
	    r8 != 0x0808080808080808 || r9 != 0x0909090909090909 ||
	    r10 != 0x1010101010101010 || r12 != 0x1212121212121212 ||
	    r13 != 0x1313131313131313 || r14 != 0x1414141414141414 ||
	    r15 != 0x1515151515151515)
		broken("registers have changed, nanosleep gave %ld", rax);
	if (memcmp(words, words + 8, 48) || words[14] != -1UL)
		broken("vector registers or flags have changed");
}
#elif defined(__aarch64__)
static void regs_once(void)
{
	struct timespec t = { .tv_nsec = 3 * MS };
	register uint64_t x0 asm("x0") = (uintptr_t)&t;
	register uint64_t x1 asm("x1") = 0;
	register uint64_t x8 asm("x8") = __NR_nanosleep;
	register uint64_t x2 asm("x2") = 0x0202020202020202;
	register uint64_t x9 asm("x9") = 0x0909090909090909;
	register uint64_t x16 asm("x16") = 0x1616161616161616;
	register uint64_t x17 asm("x17") = 0x1717171717171717;
	register uint64_t x20 asm("x20") = 0x2020202020202020;
	register uint64_t x28 asm("x28") = 0x2828282828282828;
	uint64_t in = 0x5555aaaa12345678, v0, v31, carry;

	asm volatile("fmov d0, %[in]\n"
		     "fmov d31, %[in]\n"
		     "cmp xzr, xzr\n"
		     "svc #0\n"
		     "cset %[carry], eq\n"
		     "fmov %[v0], d0\n"
		     "fmov %[v31], d31\n"
		     : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x8), "+r"(x9),
		       "+r"(x16), "+r"(x17), "+r"(x20), "+r"(x28),
		       [v0] "=&r"(v0), [v31] "=&r"(v31), [carry] "=&r"(carry)
		     : [in] "r"(in), "m"(t)
		     : "v0", "v31", "memory", "cc");
	if (x0 || x1 || x2 != 0x0202020202020202 ||
	    x9 != 0x0909090909090909 || x16 != 0x1616161616161616 ||
	    x17 != 0x1717171717171717 || x20 != 0x2020202020202020 ||
	    x28 != 0x2828282828282828)
		broken("registers have changed, nanosleep gave %ld", (long)x0);
	if (v0 != in || v31 != in || !carry)
		broken("vector registers or flags have changed");
}
#else
static void regs_once(void)
{
	struct timespec t = { .tv_nsec = 3 * MS };
	register uint64_t a0 asm("a0") = (uintptr_t)&t;
	register uint64_t a1 asm("a1") = 0;
	register uint64_t a7 asm("a7") = __NR_nanosleep;
	register uint64_t a2 asm("a2") = 0x0202020202020202;
	register uint64_t t0 asm("t0") = 0x0909090909090909;
	register uint64_t t1 asm("t1") = 0x1616161616161616;
	register uint64_t t6 asm("t6") = 0x1717171717171717;
	register uint64_t s3 asm("s3") = 0x2020202020202020;
	register uint64_t s11 asm("s11") = 0x2828282828282828;
	uint64_t in = 0x5555aaaa12345678, f0, f31;

	asm volatile("fmv.d.x f0, %[in]\n"
		     "fmv.d.x f31, %[in]\n"
		     "ecall\n"
		     "fmv.x.d %[f0], f0\n"
		     "fmv.x.d %[f31], f31\n"
		     : "+r"(a0), "+r"(a1), "+r"(a2), "+r"(a7), "+r"(t0),
		       "+r"(t1), "+r"(t6), "+r"(s3), "+r"(s11),
		       [f0] "=&r"(f0), [f31] "=&r"(f31)
		     : [in] "r"(in), "m"(t)
		     : "f0", "f31", "memory");
	if (a0 || a1 || a2 != 0x0202020202020202 ||
	    t0 != 0x0909090909090909 || t1 != 0x1616161616161616 ||
	    t6 != 0x1717171717171717 || s3 != 0x2020202020202020 ||
	    s11 != 0x2828282828282828)
		broken("registers have changed, nanosleep gave %ld", (long)a0);
	if (f0 != in || f31 != in)
		broken("floating point registers have changed");
}
#endif

/* No system calls for a while, and a result that is known. */
static void compute_once(void)
{
	double x = 1.0;
	unsigned int i;

	for (i = 0; i < 1000000; i++)
		x = x * 1.0000001 + 1e-9;
	if (x < 1.106 || x > 1.107)
		broken("computed %f", x);
	usleep(10000);
}

static const struct {
	const char *name;
	void (*once)(void);
} works[] = {
	{ "nanosleep", sleep_once },
	{ "timed futex", futex_timed_once },
	{ "futex ping", futex_ping },
	{ "futex pong", futex_pong },
	{ "read", read_once },
	{ "write", write_once },
	{ "poll", poll_once },
	{ "epoll", epoll_once },
	{ "registers", regs_once },
	{ "compute", compute_once },
	{ LONG_SLEEP, long_sleep_once },
};

#define NR_WORKS (sizeof(works) / sizeof(works[0]))

static void *work(void *arg)
{
	unsigned long i = (uintptr_t)arg;

	prctl(PR_SET_NAME, works[i].name);
	while (!stop) {
		works[i].once();
		__atomic_fetch_add(&progress[i], 1, __ATOMIC_RELAXED);
	}

	return NULL;
}

static void on_term(int sig)
{
	stop = 1;
}

static void print_line(void)
{
	int fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
	unsigned long request = NS_GET_USERNS;
	int made = fd < 0 ? -1 : ioctl(fd, request);

	if (made < 0) {
		close(fd);
		request = USERFAULTFD_IOC_NEW;
		fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
		made = fd < 0 ? -1 : ioctl(fd, request, 0);
	}
	if (made >= 0)
		close(made);
	printf("%d %d %d %lu\n", getpid(), pipes[3][0], made < 0 ? -1 : fd,
	       request);
	fflush(stdout);
}

/* Every thread has to get on. */
static void watch(void)
{
	unsigned long before[NR_WORKS];
	unsigned int i, n;

	while (!stop) {
		for (i = 0; i < NR_WORKS; i++)
			before[i] = __atomic_load_n(&progress[i], __ATOMIC_RELAXED);
		for (n = 0; n < 1000 && !stop; n++)
			signal_once();
		for (i = 0; i < NR_WORKS && !stop; i++) {
			if (progress[i] == before[i])
				broken("%s does not get on", works[i].name);
		}
	}
}

int main(void)
{
	struct sigaction usr1 = { .sa_handler = on_usr1 };
	struct sigaction term = { .sa_handler = on_term,
				  .sa_flags = SA_RESTART };
	struct epoll_event in = { .events = EPOLLIN };
	pthread_t threads[NR_WORKS];
	sigset_t all, old;
	unsigned int i;

	for (i = 0; i < sizeof(pipes) / sizeof(pipes[0]); i++) {
		if (pipe(pipes[i]))
			broken("pipe: %s", strerror(errno));
	}
	epoll = epoll_create1(0);
	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[2][0], &in))
		broken("epoll: %s", strerror(errno));
	sigaction(SIGUSR1, &usr1, NULL);
	sigaction(SIGTERM, &term, NULL);
	/* Signals are the main thread's. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	for (i = 0; i < NR_WORKS; i++) {
		if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i))
			broken("no thread");
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	print_line();
	watch();

	return 0;
}
