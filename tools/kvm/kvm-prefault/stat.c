// SPDX-License-Identifier: GPL-2.0
/*
 * Show the prefault statistics of a VMM's vCPUs.
 *
 * They are read from KVM's binary statistics: of descriptors that the VMM has
 * opened itself, or else of such that one of its threads is made to open and
 * that are fetched at once.  Where no thread may be used, because all are under
 * seccomp filters, debugfs has at least the sums.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kvm-prefault.h"
#include "inject.h"

#define VCPUS_MAX	4096
#define DEBUGFS		"/sys/kernel/debug/kvm"

#define VCPU_NAME	"anon_inode:kvm-vcpu:"
#define STATS_NAME	"anon_inode:kvm-vcpu-stats:"

static const char * const names[] = {
	"windows", "mapped", "absent", "raced", "backoff",
};

#define NR_STATS	ARRAY_SIZE(names)

struct source {
	int id;			/* of the vCPU; -1 for a VM's sums */
	int fd;			/* in the target */
	int stats;		/* here; binary statistics */
	char *dir;		/* debugfs */
	off_t offset[NR_STATS];
	uint64_t value[NR_STATS], old[NR_STATS];
};

static struct {
	pid_t pid;
	double interval;
	long times;
	bool json;
	struct source *sources;
	unsigned int nr;
} view;

struct found {
	int id, fd;
};

struct found_list {
	struct found vcpus[VCPUS_MAX], stats[VCPUS_MAX];
	unsigned int nr_vcpus, nr_stats;
	bool vm;
};

static void found_one(struct found *list, unsigned int *n, int fd,
		      const char *id)
{
	if (*n < VCPUS_MAX)
		list[(*n)++] = (struct found){ .id = atoi(id), .fd = fd };
}

static int look_at_fd(void *ctx, int fd, const char *name)
{
	struct found_list *f = ctx;

	if (!strncmp(name, VCPU_NAME, strlen(VCPU_NAME)))
		found_one(f->vcpus, &f->nr_vcpus, fd, name + strlen(VCPU_NAME));
	else if (!strncmp(name, STATS_NAME, strlen(STATS_NAME)))
		found_one(f->stats, &f->nr_stats, fd, name + strlen(STATS_NAME));
	else if (!strcmp(name, "anon_inode:kvm-vm"))
		f->vm = true;

	return 0;
}

static int by_id(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->id != y->id ? x->id - y->id : x->fd - y->fd;
}

/* Where the statistics are in what a stats descriptor gives. */
static int find_offsets(struct source *s)
{
	struct kvm_stats_header h;
	struct kvm_stats_desc *d;
	unsigned int i, j, found = 0;
	size_t size;

	if (pread(s->stats, &h, sizeof(h), 0) != sizeof(h))
		return fail(ST_FAILED, "the statistics of vCPU %d cannot be read",
			    s->id);
	size = sizeof(*d) + h.name_size;
	d = malloc(size);
	for (i = 0; d && i < h.num_desc; i++) {
		if (pread(s->stats, d, size, h.desc_offset + i * size) !=
		    (ssize_t)size)
			break;
		for (j = 0; j < NR_STATS; j++) {
			if (strncmp(d->name, "prefault_", 9) ||
			    strcmp(d->name + 9, names[j]))
				continue;
			s->offset[j] = h.data_offset + d->offset;
			found++;
		}
	}
	free(d);

	return found == NR_STATS ? ST_OK :
	       fail(ST_NO_CAP, "this kernel's KVM has no prefault statistics");
}

static int add_source(const struct found *vcpu, int stats)
{
	struct source *s = &view.sources[view.nr];

	s->id = vcpu->id;
	s->fd = vcpu->fd;
	s->stats = stats;
	view.nr++;

	return find_offsets(s);
}

/* The VMM has opened them. */
static int take_stats(const struct found_list *f)
{
	int pidfd = syscall(__NR_pidfd_open, view.pid, 0);
	int fd, r = ST_OK;
	unsigned int i;

	for (i = 0; !r && i < f->nr_stats; i++) {
		fd = syscall(__NR_pidfd_getfd, pidfd, f->stats[i].fd, 0);
		r = fd < 0 ? explain_permission(view.pid, errno) :
		    add_source(&f->stats[i], fd);
	}
	close(pidfd);

	return r;
}

static int explain_stats_fd(int error)
{
	switch (error) {
	case ENOTTY:
	case EINVAL:
		return fail(ST_NO_CAP, "this kernel's KVM has no binary statistics");
	case EIO:
		return fail(ST_NO_KVM, "the VM of process %d belongs to another process",
			    view.pid);
	case EPERM:
	case EACCES:
		return explain_permission(view.pid, error);
	default:
		return fail(ST_FAILED, "statistics of process %d: %s", view.pid,
			    strerror(error));
	}
}

static int open_stats(const struct found_list *f)
{
	struct session s = {};
	unsigned int i;
	int fd, r;

	r = lock_process(view.pid);
	if (!r)
		r = session_open(&s, view.pid);
	if (r)
		return r;
	for (i = 0; !r && i < f->nr_vcpus; i++) {
		r = session_ioctl_fd(&s, f->vcpus[i].fd, KVM_GET_STATS_FD, &fd);
		if (!r)
			r = fd < 0 ? explain_stats_fd(-fd) :
			    add_source(&f->vcpus[i], fd);
	}
	session_close(&s);

	return r;
}

/* The folders of this process's VMs; KVM names them after the creating thread. */
static int find_debugfs(void)
{
	bool other = false;
	struct dirent *d;
	char path[LINE_LEN];
	int pid, fd;
	DIR *dir;

	dir = opendir(DEBUGFS);
	while (dir && view.nr < VCPUS_MAX && (d = readdir(dir))) {
		if (sscanf(d->d_name, "%d-%d", &pid, &fd) != 2)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%d", view.pid, pid);
		if (access(path, F_OK))
			continue;
		snprintf(path, sizeof(path), DEBUGFS "/%s/prefault_mapped",
			 d->d_name);
		other = access(path, F_OK);
		if (other)
			continue;
		view.sources[view.nr].id = -1;
		view.sources[view.nr].fd = fd;
		view.sources[view.nr].stats = -1;
		if (asprintf(&view.sources[view.nr].dir, DEBUGFS "/%s",
			     d->d_name) > 0)
			view.nr++;
	}
	if (dir)
		closedir(dir);
	if (view.nr)
		return ST_OK;
	if (other)
		return fail(ST_NO_CAP, "this kernel's KVM has no prefault statistics");

	return fail(ST_SECCOMP,
		    "process %d is under a seccomp filter, and there is nothing in " DEBUGFS,
		    view.pid);
}

static bool all_filtered(void)
{
	char path[64];
	struct dirent *d;
	bool all = true;
	DIR *dir;
	int tid;

	snprintf(path, sizeof(path), "/proc/%d/task", view.pid);
	dir = opendir(path);
	while (dir && all && (d = readdir(dir))) {
		tid = atoi(d->d_name);
		all = tid <= 0 || status_number(view.pid, tid, "Seccomp") > 0;
	}
	if (dir)
		closedir(dir);

	return all;
}

static int find_sources(void)
{
	static struct found_list f;
	int r;

	r = walk_fds(view.pid, look_at_fd, &f);
	if (r)
		return r;
	if (!f.nr_vcpus && !f.nr_stats)
		return fail(ST_NO_KVM, "process %d has no %s", view.pid,
			    f.vm ? "vCPU" : "VM");

	view.sources = calloc(VCPUS_MAX, sizeof(*view.sources));
	if (!view.sources)
		return fail(ST_FAILED, "no memory");
	qsort(f.vcpus, f.nr_vcpus, sizeof(*f.vcpus), by_id);
	qsort(f.stats, f.nr_stats, sizeof(*f.stats), by_id);
	if (f.nr_stats == f.nr_vcpus)
		return take_stats(&f);

	return all_filtered() ? find_debugfs() : open_stats(&f);
}

static uint64_t read_file(const char *dir, const char *name)
{
	char path[LINE_LEN];
	uint64_t value = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/prefault_%s", dir, name);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%" SCNu64, &value) != 1)
			value = 0;
		fclose(f);
	}

	return value;
}

static void read_source(struct source *s)
{
	unsigned int i;

	memcpy(s->old, s->value, sizeof(s->old));
	for (i = 0; i < NR_STATS; i++) {
		if (s->dir)
			s->value[i] = read_file(s->dir, names[i]);
		else if (pread(s->stats, &s->value[i], 8, s->offset[i]) != 8)
			s->value[i] = s->old[i];
	}
}

/* What is shown of a source: all there was, or a rate. */
static uint64_t shown(const struct source *s, unsigned int i, double seconds)
{
	if (!seconds)
		return s->value[i];

	return (s->value[i] - s->old[i]) / seconds + 0.5;
}

static void print_json(const struct source *s, double seconds)
{
	unsigned int i;

	for (i = 0; i < NR_STATS; i++)
		printf("%s\"prefault_%s\":%" PRIu64, i ? "," : "", names[i],
		       shown(s, i, seconds));
	printf("}");
}

static void print_row(const char *name, const struct source *s, double seconds)
{
	unsigned int i;

	printf("%-8s", name);
	for (i = 0; i < NR_STATS; i++)
		printf(" %12" PRIu64, shown(s, i, seconds));
	printf("\n");
}

static void add_up(struct source *sum, const struct source *s)
{
	unsigned int i;

	for (i = 0; i < NR_STATS; i++) {
		sum->value[i] += s->value[i];
		sum->old[i] += s->old[i];
	}
}

static void show_json(const struct source *sum, double seconds)
{
	unsigned int i;

	printf("{\"pid\":%d,", view.pid);
	if (seconds)
		printf("\"seconds\":%.3f,", seconds);
	printf("\"%s\":[", view.sources[0].id < 0 ? "vms" : "vcpus");
	for (i = 0; i < view.nr; i++) {
		printf("%s{", i ? "," : "");
		if (view.sources[i].id >= 0)
			printf("\"vcpu\":%d,", view.sources[i].id);
		printf("\"fd\":%d,", view.sources[i].fd);
		print_json(&view.sources[i], seconds);
	}
	printf("],\"sum\":{");
	print_json(sum, seconds);
	printf("}\n");
}

static void show_table(const struct source *sum, double seconds)
{
	unsigned int i;
	char name[16];

	printf("%-8s", view.sources[0].id < 0 ? "VM" : "vCPU");
	for (i = 0; i < NR_STATS; i++)
		printf(" %10s%s", names[i], seconds ? "/s" : "  ");
	printf("\n");
	for (i = 0; i < view.nr; i++) {
		snprintf(name, sizeof(name), "%d", view.sources[i].id < 0 ?
			 view.sources[i].fd : view.sources[i].id);
		print_row(name, &view.sources[i], seconds);
	}
	print_row("sum", sum, seconds);
}

/* @seconds: since the values were read last; 0 for the first time. */
static void show(double seconds)
{
	struct source sum = { .id = -1 };
	unsigned int i;

	for (i = 0; i < view.nr; i++) {
		read_source(&view.sources[i]);
		add_up(&sum, &view.sources[i]);
	}
	if (view.json)
		show_json(&sum, seconds);
	else
		show_table(&sum, seconds);
	fflush(stdout);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/*
 * Until the process ends.  Our descriptors keep its VM alive, so this must not
 * be noticed late.
 */
static void watch(void)
{
	struct pollfd p = { .events = POLLIN };
	double last = now(), next = last + view.interval;
	int left;

	p.fd = syscall(__NR_pidfd_open, view.pid, 0);
	while (p.fd >= 0 && view.times--) {
		left = (next - now()) * 1000;
		if (poll(&p, 1, left > 0 ? left : 0))
			break;
		show(now() - last);
		last = now();
		next += view.interval;
	}
}

int cmd_stat(int argc, char **argv)
{
	static const struct option options[] = {
		{ "interval", required_argument, NULL, 'i' },
		{ "times", required_argument, NULL, 'n' },
		{ "json", no_argument, NULL, 'j' },
		{ }
	};
	long number;
	char *end;
	int c, r;

	view.times = -1;
	while ((c = getopt_long(argc, argv, "i:n:j", options, NULL)) != -1) {
		switch (c) {
		case 'i':
			view.interval = strtod(optarg, &end);
			if (end == optarg || *end ||
			    !(view.interval >= 0.01 && view.interval <= 86400))
				return fail(ST_USAGE, "-i needs seconds, not '%s'",
					    optarg);
			break;
		case 'n':
			if (!parse_number(optarg, 1, LONG_MAX, &view.times))
				return fail(ST_USAGE, "-n needs a number, not '%s'",
					    optarg);
			break;
		case 'j':
			view.json = true;
			break;
		default:
			return ST_USAGE;
		}
	}
	if (optind + 1 != argc || !parse_number(argv[optind], 1, INT_MAX, &number))
		return fail(ST_USAGE, "usage: kvm-prefault stat PID [-i SECONDS] [-n TIMES] [--json]");

	view.pid = number;
	r = check_process(&view.pid);
	if (!r)
		r = find_sources();
	if (r)
		return r;

	show(0);
	if (view.interval)
		watch();

	return ST_OK;
}
