// SPDX-License-Identifier: GPL-2.0
/*
 * Process 1 of the guest that lab/demo-vmm's VMM runs: a memory workload that
 * checks itself and is told by lines on the console what to do.
 *
 *	work N		N rounds over all pages
 *	loop		rounds until the next line arrives
 *	read		looks at every page
 *	map		where the pages are: lines "map INDEX PFN COUNT STEP"
 *	dirty K		reads every other page, writes to one in K (even) of all
 *	written		which these were: lines "wrote INDEX COUNT"
 *	quit		ends the machine
 *
 * A page has a generation; each of its words is a function of the page, the
 * word and the generation.  A round checks every word of every page against
 * the generation that the page has been given last, and writes the next one.
 * Every command is answered by one line "guest: COMMAND ...", with the number
 * of wrong words that were found until then.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

/* A power of two: 16 MiB. */
#define NR_PAGES	4096
#define CPUS_MAX	8

static uint64_t *region;
static uint32_t generation[NR_PAGES];
static size_t page_size, words;
static unsigned int nr_workers;
static pthread_barrier_t start, end;
static uint64_t errors;
/* Of how many pages "dirty" writes one. */
static unsigned int one_in = 2;

static uint64_t *page(unsigned int index)
{
	return region + index * words;
}

static uint64_t content(unsigned int index, unsigned int word, uint32_t gen)
{
	uint64_t x = ((uint64_t)index << 32 | word) + gen * 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
	return x ^ x >> 29;
}

static void fill(unsigned int index, uint32_t gen)
{
	uint64_t *p = page(index);
	unsigned int i;

	for (i = 0; i < words; i++)
		p[i] = content(index, i, gen);
	generation[index] = gen;
}

static void check(unsigned int index)
{
	volatile uint64_t *p = page(index);
	unsigned int i, wrong = 0;

	for (i = 0; i < words; i++)
		wrong += p[i] != content(index, i, generation[index]);
	if (wrong)
		__atomic_fetch_add(&errors, wrong, __ATOMIC_RELAXED);
}

/* Numbers below a power of two in an order that looks random, each once. */
static unsigned int shuffle(unsigned int k)
{
	k = (k * 0x9e5u) % NR_PAGES;
	k ^= k >> 5;
	return (k * 0x2c9u) % NR_PAGES;
}

static void *worker(void *arg)
{
	unsigned int k;

	for (;;) {
		pthread_barrier_wait(&start);
		for (k = (uintptr_t)arg; k < NR_PAGES; k += nr_workers) {
			check(shuffle(k));
			fill(shuffle(k), generation[shuffle(k)] + 1);
		}
		pthread_barrier_wait(&end);
	}

	return NULL;
}

static void work_round(void)
{
	pthread_barrier_wait(&start);
	pthread_barrier_wait(&end);
}

static bool line_waits(void)
{
	struct pollfd p = { .fd = 0, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void read_all(void)
{
	unsigned int i;

	for (i = 0; i < NR_PAGES; i++)
		check(i);
}

/* Fills @pfns; false where a page is not there. */
static bool page_frames(uint64_t *pfns)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	off_t offset = (uintptr_t)region / page_size * 8;
	size_t size = NR_PAGES * sizeof(*pfns);
	unsigned int i;
	bool ok;

	ok = fd >= 0 && pread(fd, pfns, size, offset) == (ssize_t)size;
	close(fd);
	for (i = 0; ok && i < NR_PAGES; i++) {
		ok = pfns[i] >> 63;
		pfns[i] &= (1ull << 55) - 1;
	}

	return ok && pfns[0];
}

static void map(void)
{
	static uint64_t pfns[NR_PAGES];
	unsigned int i, n;
	int step;

	if (!page_frames(pfns)) {
		printf("guest: no page frame numbers\n");
		return;
	}
	/* In few lines: the console is slow. */
	for (i = 0; i < NR_PAGES; i += n) {
		step = i + 1 < NR_PAGES && pfns[i + 1] < pfns[i] ? -1 : 1;
		for (n = 1; i + n < NR_PAGES && pfns[i + n] == pfns[i + n - 1] + step;)
			n++;
		printf("map %u %llu %u %d\n", i, (unsigned long long)pfns[i], n, step);
	}
}

/* Neighbours of used pages are not used: nothing may be said about them. */
static bool is_used(unsigned int index)
{
	return shuffle(index) % 2;
}

static bool is_written(unsigned int index)
{
	return index < NR_PAGES && shuffle(index) % one_in == 1;
}

static void dirty(void)
{
	unsigned int i;

	for (i = 0; i < NR_PAGES; i++) {
		if (!is_used(i))
			continue;
		check(i);
		if (is_written(i))
			fill(i, generation[i] + 1);
	}
}

static void written(void)
{
	unsigned int i, n;

	for (i = 0; i < NR_PAGES; i += n) {
		for (n = 0; is_written(i + n);)
			n++;
		if (n)
			printf("wrote %u %u\n", i, n);
		else
			n = 1;
	}
}

static void obey(char *line)
{
	unsigned long number, i, rounds = 0;
	char *arg;

	line[strcspn(line, "\r\n")] = '\0';
	arg = strchr(line, ' ');
	number = arg ? strtoul(arg, NULL, 10) : 1;
	if (!strncmp(line, "work", 4)) {
		for (i = 0; i < number; i++, rounds++)
			work_round();
	} else if (!strcmp(line, "loop")) {
		printf("guest: looping\n");
		do {
			work_round();
			rounds++;
		} while (!line_waits());
	} else if (!strcmp(line, "read")) {
		read_all();
	} else if (!strcmp(line, "map")) {
		map();
	} else if (!strncmp(line, "dirty", 5)) {
		one_in = number >= 2 ? number : 2;
		dirty();
	} else if (!strcmp(line, "written")) {
		written();
	} else if (!strcmp(line, "quit")) {
		reboot(RB_AUTOBOOT);
	} else {
		return;
	}
	printf("guest: %s done, rounds %lu errors %llu\n", line, rounds,
	       (unsigned long long)errors);
}

static void start_workers(void)
{
	pthread_t thread;
	unsigned int i;

	nr_workers = sysconf(_SC_NPROCESSORS_ONLN);
	if (nr_workers > CPUS_MAX)
		nr_workers = CPUS_MAX;
	pthread_barrier_init(&start, NULL, nr_workers + 1);
	pthread_barrier_init(&end, NULL, nr_workers + 1);
	for (i = 0; i < nr_workers; i++)
		pthread_create(&thread, NULL, worker, (void *)(uintptr_t)i);
}

int main(void)
{
	struct termios mode;
	char line[64];
	unsigned int i;

	mkdir("/proc", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	if (!tcgetattr(0, &mode)) {
		cfmakeraw(&mode);
		tcsetattr(0, TCSANOW, &mode);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	page_size = sysconf(_SC_PAGESIZE);
	words = page_size / sizeof(*region);
	region = mmap(NULL, NR_PAGES * page_size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (region == MAP_FAILED || mlockall(MCL_CURRENT | MCL_FUTURE)) {
		printf("guest: no memory\n");
		reboot(RB_AUTOBOOT);
	}
	for (i = 0; i < NR_PAGES; i++)
		fill(i, 1);
	start_workers();
	printf("guest: ready, pages %u processors %u\n", NR_PAGES, nr_workers);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	printf("guest: no more input\n");
	for (;;)
		pause();
}
