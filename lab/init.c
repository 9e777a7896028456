// SPDX-License-Identifier: GPL-2.0
/*
 * Process 1 of the lab's machines: mounts the usual file systems, runs the
 * command of this run with a shell and ends the machine.
 *
 * The command's stdout and stderr are channels of their own, so that kernel
 * messages never mix with them. Its exit status goes to the kernel's console,
 * behind a token that only this run knows.
 *
 * The kernel hands "name=value" arguments that it does not know to process 1
 * as environment: lab_out and lab_err are the two channels, lab_token the
 * token.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/serial.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define WORKING_DIR	"/lab"
#define COMMAND_FILE	"/lab-command"

/* Shells report a command that cannot be started this way. */
#define EXIT_CANNOT_RUN	126

static const struct {
	const char *type, *where, *options;
} mounts[] = {
	{ "devtmpfs",	"/dev",				NULL },
	{ "proc",	"/proc",			NULL },
	{ "sysfs",	"/sys",				NULL },
	{ "debugfs",	"/sys/kernel/debug",		NULL },
	{ "tracefs",	"/sys/kernel/tracing",		NULL },
	{ "cgroup2",	"/sys/fs/cgroup",		NULL },
	{ "tmpfs",	"/dev/shm",			NULL },
	{ "tmpfs",	"/tmp",				NULL },
	{ "hugetlbfs",	"/dev/hugepages",		NULL },
};

static char *const command_env[] = {
	"PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/", "TERM=dumb", "USER=root",
	NULL
};

/* Critical level: printed whatever the console's level is. */
static void __attribute__((format(printf, 1, 2))) console(const char *fmt, ...)
{
	int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	char line[256];
	va_list ap;
	int len;

	len = snprintf(line, sizeof(line), "<2>lab: ");
	va_start(ap, fmt);
	vsnprintf(line + len, sizeof(line) - len, fmt, ap);
	va_end(ap);
	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		printf("%s\n", line + 3);
	if (fd >= 0)
		close(fd);
}

static void mount_all(void)
{
	unsigned int i;

	for (i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		mkdir(mounts[i].where, 0755);
		/* A kernel without one of them is a command's business. */
		mount(mounts[i].type, mounts[i].where, mounts[i].type, 0,
		      mounts[i].options);
	}
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
}

/* The line has to be closed and opened again after this. */
static void set_irq(const char *device, int irq)
{
	struct serial_struct port;
	int fd = open(device, O_WRONLY | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (!ioctl(fd, TIOCGSERIAL, &port)) {
		port.irq = irq;
		if (ioctl(fd, TIOCSSERIAL, &port))
			console("%s: irq %d: %s\n", device, irq, strerror(errno));
	}
	close(fd);
}

/*
 * Opens one of the channels, "DEVICE" or "DEVICE,IRQ". A serial line passes
 * what is written as it is, without carriage returns.
 */
static int open_channel(const char *variable)
{
	char *device = getenv(variable), *irq;
	struct termios mode;
	int fd, tries;

	if (!device)
		return -1;
	irq = strchr(device, ',');
	if (irq) {
		*irq++ = '\0';
		set_irq(device, atoi(irq));
	}
	/* Virtual ones may be found a little later. */
	for (tries = 0; tries < 100; tries++) {
		fd = open(device, O_WRONLY | O_NOCTTY | O_CLOEXEC);
		if (fd >= 0 || errno != ENOENT)
			break;
		usleep(100000);
	}
	if (fd < 0) {
		console("%s: %s\n", device, strerror(errno));
		return -1;
	}
	if (!tcgetattr(fd, &mode)) {
		cfmakeraw(&mode);
		cfsetspeed(&mode, B115200);
		tcsetattr(fd, TCSANOW, &mode);
	}
	return fd;
}

/* Runs one program and returns its status as a shell would. */
static int run(char *const argv[], int out, int err)
{
	int status;
	pid_t pid, gone;

	pid = fork();
	if (pid < 0)
		return EXIT_CANNOT_RUN;
	if (!pid) {
		int in = open("/dev/null", O_RDONLY);

		setsid();
		dup2(in, 0);
		if (out >= 0)
			dup2(out, 1);
		if (err >= 0)
			dup2(err, 2);
		execve(argv[0], argv, command_env);
		console("%s: %s\n", argv[0], strerror(errno));
		_exit(EXIT_CANNOT_RUN);
	}
	/* Process 1 also inherits orphans. */
	do {
		gone = wait(&status);
	} while (gone != pid && (gone > 0 || errno == EINTR));
	if (gone != pid)
		return EXIT_CANNOT_RUN;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(void)
{
	char *const applets[] = { "/bin/busybox", "--install", "-s", "/bin", NULL };
	char *const command[] = { "/bin/sh", COMMAND_FILE, NULL };
	const char *token = getenv("lab_token");
	const struct rlimit files = { 65536, 65536 };
	int out, err, status;

	mount_all();
	out = open_channel("lab_out");
	err = open_channel("lab_err");
	setrlimit(RLIMIT_NOFILE, &files);
	run(applets, -1, -1);
	status = EXIT_CANNOT_RUN;
	if (!chdir(WORKING_DIR))
		status = run(command, out, err);

	/* Nobody may write behind the end of the output. */
	kill(-1, SIGKILL);
	while (wait(NULL) > 0)
		;
	if (out >= 0)
		tcdrain(out);
	if (err >= 0)
		tcdrain(err);
	console("%s exit %d\n", token ? token : "", status);
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}
