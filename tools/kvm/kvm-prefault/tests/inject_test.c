// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of inject.c that need no KVM.
 *
 *	inject_test all TARGET [RUNS]	everything; RUNS kills at random times
 *	inject_test once PID PIPE FD REQUEST [STEP]
 *					one use of it; dies before ptrace request
 *					number STEP
 *	inject_test kill-run RUNS COMMAND...
 *					kills the helper of kvm-prefault run
 *	inject_test as UID COMMAND...	runs a command as another user
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject.h"

#define RUNS_DEFAULT	200

static long steps, die_at;

static void count_step(void)
{
	if (++steps == die_at)
		raise(SIGKILL);
}

struct aim {
	pid_t pid;
	int pipe;
	int fd;
	unsigned long request;
};

static void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "inject_test: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

static long fd_flags(const struct aim *aim)
{
	char path[64], line[128];
	long flags = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", aim->pid, aim->pipe);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "flags: %lo", &flags);
	if (f)
		fclose(f);

	return flags;
}

static void call(struct session *s, const struct aim *aim, unsigned long request,
		 const int *arg, long flag, bool set)
{
	long result;
	int r;

	r = session_ioctl(s, aim->pipe, request, arg, arg ? sizeof(*arg) : 0, 0,
			  &result);
	if (r)
		exit(r);
	if (result)
		die("request %#lx gave %ld", request, result);
	if (!(fd_flags(aim) & flag) == set)
		die("request %#lx had no effect", request);
}

/* Calls with an argument, without one, and one that makes a descriptor. */
static int once(const struct aim *aim)
{
	const int on = 1, off = 0;
	struct session s = {};
	int fd, r;

	r = session_open(&s, aim->pid);
	if (r)
		return r;
	call(&s, aim, FIOCLEX, NULL, O_CLOEXEC, true);
	call(&s, aim, FIONBIO, &on, O_NONBLOCK, true);
	if (aim->fd >= 0) {
		r = session_ioctl_fd(&s, aim->fd, aim->request, &fd);
		if (r)
			exit(r);
		if (fd < 0)
			die("no descriptor: %s", strerror(-fd));
		close(fd);
	}
	call(&s, aim, FIONCLEX, NULL, O_CLOEXEC, false);
	call(&s, aim, FIONBIO, &off, O_NONBLOCK, false);
	session_close(&s);

	return 0;
}

static pid_t start_target(const char *path, struct aim *aim)
{
	char line[128];
	int out[2];
	pid_t pid;
	FILE *f;

	if (pipe(out))
		die("pipe");
	pid = fork();
	if (!pid) {
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		execl(path, path, NULL);
		die("%s: %s", path, strerror(errno));
	}
	close(out[1]);
	f = fdopen(out[0], "r");
	if (!fgets(line, sizeof(line), f) ||
	    sscanf(line, "%d %d %d %lu", &aim->pid, &aim->pipe, &aim->fd,
		   &aim->request) != 4)
		die("the target does not start");
	fclose(f);

	return pid;
}

static void check_alive(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, WNOHANG))
		die("the target is gone, status %#x", status);
}

static void stop_target(pid_t pid)
{
	int status, i;

	kill(pid, SIGTERM);
	for (i = 0; i < 500; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid) {
			if (status)
				die("the target's status is %#x", status);
			return;
		}
		usleep(10000);
	}
	die("the target does not end");
}

static int count_fds(pid_t pid)
{
	char path[64];
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);

	return n;
}

/* No thread is traced any more. */
static void check_untraced(pid_t pid)
{
	struct dirent *d;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		if (d->d_name[0] != '.' &&
		    status_number(pid, atoi(d->d_name), "TracerPid") > 0)
			die("thread %s is still traced", d->d_name);
	}
	if (dir)
		closedir(dir);
}

/* Runs once() in a child; returns its wait status, the steps in *@taken. */
static int run_child(const struct aim *aim, long step, long delay_us,
		     long *taken)
{
	struct timespec t = { .tv_nsec = delay_us * 1000 };
	int status, result[2];
	pid_t pid;

	if (pipe(result))
		die("pipe");
	pid = fork();
	if (!pid) {
		ptrace_hook = count_step;
		die_at = step;
		status = once(aim);
		if (write(result[1], &steps, sizeof(steps)) != sizeof(steps))
			_exit(1);
		_exit(status);
	}
	close(result[1]);
	if (delay_us >= 0) {
		nanosleep(&t, NULL);
		kill(pid, SIGKILL);
	}
	waitpid(pid, &status, 0);
	if (taken && read(result[0], taken, sizeof(*taken)) != sizeof(*taken))
		*taken = 0;
	close(result[0]);

	return status;
}

/* A killed run may leave the flags set: they are the call's effect. */
static void clear_flags(const struct aim *aim)
{
	int status = run_child(aim, 0, -1, NULL);

	if (status)
		die("it does not work any more after a kill: %#x", status);
}

static void test_every_step(const struct aim *aim, pid_t pid)
{
	long step, taken = 0, killed = 0;
	int status;

	status = run_child(aim, 0, -1, &taken);
	if (status || !taken)
		die("the first run failed: %#x", status);
	/* Some of the many steps that only read or write one word will do. */
	for (step = 1; step <= taken; step += step > 40 && step < taken - 60 ? 5 : 1) {
		status = run_child(aim, step, -1, NULL);
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
			killed++;
		else if (status)
			die("killed at step %ld: status %#x", step, status);
		check_alive(pid);
		check_untraced(pid);
	}
	clear_flags(aim);
	printf("ok: killed at %ld of %ld steps\n", killed, taken);
}

static long run_us(const struct aim *aim)
{
	struct timespec a, b;
	int status;

	clock_gettime(CLOCK_MONOTONIC, &a);
	status = run_child(aim, 0, -1, NULL);
	clock_gettime(CLOCK_MONOTONIC, &b);
	if (status)
		die("a run failed: %#x", status);

	return (b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000;
}

static void test_random_kills(const struct aim *aim, pid_t pid, long runs)
{
	long i, us = 0, killed = 0, done = 0;
	int status;

	for (i = 0; i < 8; i++)
		us += run_us(aim);
	us /= 8;
	/* Some come too late. */
	while (killed < runs && done < 10 * runs) {
		status = run_child(aim, 0, random() % us, NULL);
		if (WIFSIGNALED(status))
			killed++;
		else if (status)
			die("run %ld: status %#x", done, status);
		done++;
		check_alive(pid);
		check_untraced(pid);
	}
	if (killed < runs)
		die("only %ld of %ld runs were killed", killed, done);
	clear_flags(aim);
	printf("ok: killed at random times, %ld of %ld runs, within %ld us\n",
	       killed, done, us);
}

/* The usual choice is always the same thread: take each, killed and not. */
static void test_every_thread(const struct aim *aim, pid_t pid, long runs)
{
	struct dirent *d;
	int status, threads = 0, busy = 0;
	long i, us = run_us(aim);
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		session_only_tid = atoi(d->d_name);
		if (session_only_tid <= 0)
			continue;
		for (i = 0; i < runs; i++) {
			status = run_child(aim, 0, i % 2 ? random() % us : -1,
					   NULL);
			/* Its signals come faster than a slow machine works. */
			if (session_only_tid == pid && WIFEXITED(status) &&
			    WEXITSTATUS(status) == ST_BUSY)
				busy++;
			else if (status && !WIFSIGNALED(status))
				die("thread %s, run %ld: status %#x", d->d_name,
				    i, status);
			check_alive(pid);
			check_untraced(pid);
		}
		threads++;
	}
	if (dir)
		closedir(dir);
	session_only_tid = 0;
	clear_flags(aim);
	printf("ok: %d threads, %ld runs each, %d of them in vain\n", threads,
	       runs, busy);
}

/* A sleep of one second, interrupted all the time for longer than is allowed. */
static void test_restart(const struct aim *aim, pid_t pid)
{
	time_t end = time(NULL) + 6;
	char name[32], path[64];
	long n = 0;
	struct dirent *d;
	int status;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && !session_only_tid && (d = readdir(dir))) {
		if (status_field(pid, atoi(d->d_name), "Name", name, sizeof(name)) &&
		    !strcmp(name, "long sleep"))
			session_only_tid = atoi(d->d_name);
	}
	if (dir)
		closedir(dir);
	if (!session_only_tid)
		die("the target has no long sleep");
	while (time(NULL) < end) {
		status = run_child(aim, 0, -1, NULL);
		check_alive(pid);
		if (status)
			die("in a long sleep: %#x", status);
		n++;
	}
	session_only_tid = 0;
	printf("ok: a sleep is continued, not begun anew, %ld times\n", n);
}

static void test_stopped(const struct aim *aim, pid_t pid)
{
	int status;

	kill(pid, SIGSTOP);
	waitpid(pid, &status, WUNTRACED);
	status = run_child(aim, 0, -1, NULL);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != ST_BUSY)
		die("a stopped target: %#x", status);
	kill(pid, SIGCONT);
	status = run_child(aim, 0, -1, NULL);
	if (status)
		die("a continued target: %#x", status);
	printf("ok: a stopped process is left alone\n");
}

/* A child whose filter kills it for any ioctl. */
static void filtered_child(int ready)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ARRAY_SIZE(code), code };
	char c;

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	c = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) ? errno : 0;
	if (write(ready, &c, 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static void test_seccomp(void)
{
	struct aim aim = { .pipe = 0, .fd = -1 };
	int status, ready[2];
	char c = 1;
	pid_t pid;

	if (pipe(ready))
		die("pipe");
	pid = fork();
	if (!pid)
		filtered_child(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		die("no answer from the filtered child");
	if (c) {
		printf("ok: # no seccomp filters here: %s\n", strerror(c));
	} else {
		aim.pid = pid;
		status = run_child(&aim, 0, -1, NULL);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != ST_SECCOMP)
			die("a filtered target: %#x", status);
		if (waitpid(pid, &status, WNOHANG))
			die("the filter has killed its process");
		printf("ok: a process under a seccomp filter is refused\n");
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

static int test_all(const char *target, long runs)
{
	struct aim aim;
	pid_t pid = start_target(target, &aim);
	int fds;

	if (pid != aim.pid)
		die("the target is process %d, not %d", aim.pid, pid);
	if (aim.fd < 0)
		printf("# nothing here makes a descriptor by an ioctl\n");
	fds = count_fds(pid);
	test_every_step(&aim, pid);
	test_random_kills(&aim, pid, runs);
	test_every_thread(&aim, pid, runs / 20);
	if (ARCH_NEEDS_HOP) {
		session_far = true;
		test_random_kills(&aim, pid, runs / 2);
		test_every_thread(&aim, pid, runs / 20);
		session_far = false;
	}
	test_restart(&aim, pid);
	test_stopped(&aim, pid);
	test_seccomp();
	/* Time for the target to notice. */
	sleep(3);
	check_alive(pid);
	if (count_fds(pid) != fds)
		die("the target has %d descriptors, it had %d", count_fds(pid),
		    fds);
	stop_target(pid);
	printf("ok: the target has noticed nothing\n");

	return 0;
}

static long tracer_of(pid_t pid)
{
	return status_number(pid, pid, "TracerPid");
}

/* On a busy machine it may be over before we look. */
static pid_t start_traced(char **argv)
{
	siginfo_t info = {};
	pid_t pid = fork();

	if (!pid) {
		dup2(open("/dev/null", O_WRONLY), 1);
		execv(argv[0], argv);
		_exit(127);
	}
	while (!tracer_of(pid) && !info.si_pid) {
		waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT);
		usleep(100);
	}

	return pid;
}

/* For how long the helper traces the VMM, in microseconds. */
static long traced_us(char **argv)
{
	pid_t pid = start_traced(argv);
	long us = 1;
	int status;

	while (tracer_of(pid) > 0) {
		usleep(200);
		us += 200;
	}
	if (waitpid(pid, &status, 0) != pid || status)
		die("without a kill: status %#x", status);

	return us;
}

static int kill_run(long runs, char **argv)
{
	long i, tracer, us, killed = 0;
	int status;
	pid_t pid;

	us = traced_us(argv);
	for (i = 0; i < runs; i++) {
		pid = start_traced(argv);
		usleep(random() % us);
		tracer = tracer_of(pid);
		if (tracer > 0 && !kill(tracer, SIGKILL))
			killed++;
		if (waitpid(pid, &status, 0) != pid || status)
			die("run %ld: the VMM's status is %#x", i, status);
	}
	printf("ok: the helper was killed in %ld of %ld runs\n", killed, runs);

	return killed < runs / 4;
}

static int run_as(long id, char **argv)
{
	if (setgid(id) || setuid(id))
		die("user %ld: %s", id, strerror(errno));
	execv(argv[0], argv);
	die("%s: %s", argv[0], strerror(errno));
}

int main(int argc, char **argv)
{
	struct aim aim;
	long runs = RUNS_DEFAULT;

	setbuf(stdout, NULL);
	srandom(getpid());
	if (argc >= 3 && !strcmp(argv[1], "all")) {
		if (argc > 3)
			runs = atol(argv[3]);
		return test_all(argv[2], runs);
	}
	if (argc >= 6 && !strcmp(argv[1], "once")) {
		aim.pid = atoi(argv[2]);
		aim.pipe = atoi(argv[3]);
		aim.fd = atoi(argv[4]);
		aim.request = strtoul(argv[5], NULL, 0);
		die_at = argc > 6 ? atol(argv[6]) : 0;
		ptrace_hook = count_step;
		return once(&aim);
	}
	if (argc >= 4 && !strcmp(argv[1], "kill-run"))
		return kill_run(atol(argv[2]), argv + 3);
	if (argc >= 4 && !strcmp(argv[1], "as"))
		return run_as(atol(argv[2]), argv + 3);
	die("usage: inject_test all TARGET [RUNS]");
}
