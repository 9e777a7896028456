// SPDX-License-Identifier: GPL-2.0
/*
 * What a policy for prefault windows costs, in instructions, on synthetic
 * traces of guest accesses: the kernel's own, compiled from
 * include/linux/kvm_prefault_policy.h, and others to compare it with.
 *
 * policy_sim [-l] [-t TRACE] [-p POLICY] [-r SEEDS] [-f FILE]
 *
 * One line for each trace and policy, averaged over the seeds. FILE is a
 * recorded trace: lines "VCPU GFN" in the order of the accesses, all resident.
 *
 * The model counts what the host executes. A page has a price if it exits, a
 * window has one for itself, for each entry it looks at and for each page it
 * maps. The constants are measured (lab/gate, -icount); see bench/POLICY.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/kvm_prefault_policy.h>

#include "model.h"

#define MAX_VCPUS	4
#define MAX_ORDER	9
#define NR_PAGES_MAX	(1u << 18)

/* xorshift64*: the same numbers everywhere. */
static u64 rng;

static u64 rand_below(u64 n)
{
	rng ^= rng >> 12;
	rng ^= rng << 25;
	rng ^= rng >> 27;
	return (rng * 2685821657736338717ULL >> 33) % n;
}

static void shuffle(u32 *list, u32 nr)
{
	u32 i, j, tmp;

	for (i = nr; i > 1; i--) {
		j = rand_below(i);
		tmp = list[i - 1];
		list[i - 1] = list[j];
		list[j] = tmp;
	}
}

/*
 * A trace: gfns, the vCPUs take turns, unless each access names its own.
 * @chunk is what userfaultfd fills at once, 0 if all is resident.
 */
struct trace {
	const char *name;
	void (*make)(struct trace *t);
	u32 pages;
	u32 arg;
	u32 chunk;
	u32 vcpus;
	u32 nr;
	u32 *gfn;
	u8 *vcpu;
};

static void add(struct trace *t, u32 gfn)
{
	if (t->nr == 4 * NR_PAGES_MAX) {
		fprintf(stderr, "%s: too long\n", t->name);
		exit(1);
	}
	t->gfn[t->nr++] = gfn;
}

static void make_forward(struct trace *t)
{
	u32 i;

	for (i = 0; i < t->pages; i++)
		add(t, i);
}

static void make_reverse(struct trace *t)
{
	u32 i;

	for (i = t->pages; i; i--)
		add(t, i - 1);
}

/* Passes over the memory, @arg pages apart. */
static void make_strided(struct trace *t)
{
	u32 i, j;

	for (i = 0; i < t->arg; i++)
		for (j = i; j < t->pages; j += t->arg)
			add(t, j);
}

static void make_random(struct trace *t)
{
	make_forward(t);
	shuffle(t->gfn, t->nr);
}

/* One page of each aligned block of @arg, the blocks in random order. */
static void make_sparse(struct trace *t)
{
	u32 i;

	for (i = 0; i < t->pages; i += t->arg)
		add(t, i + rand_below(t->arg));
	shuffle(t->gfn, t->nr);
}

/* The same, from the first block to the last. */
static void make_sparse_forward(struct trace *t)
{
	u32 i;

	for (i = 0; i < t->pages; i += t->arg)
		add(t, i + rand_below(t->arg));
}

/* Each page with a chance of one in @arg. */
static void make_scattered(struct trace *t)
{
	u32 i;

	for (i = 0; i < t->pages; i++)
		if (!rand_below(t->arg))
			add(t, i);
	shuffle(t->gfn, t->nr);
}

/* Objects of @arg pages, each used from its start to its end. */
static void make_objects(struct trace *t)
{
	u32 n = t->pages / t->arg, *list = malloc(n * sizeof(*list)), i, j;

	for (i = 0; i < n; i++)
		list[i] = i * t->arg;
	shuffle(list, n);
	/* Half of them. */
	for (i = 0; i < n / 2; i++)
		for (j = 0; j < t->arg; j++)
			add(t, list[i] + j);
	free(list);
}

/* @arg streams that take turns, each through its own part. */
static void make_streams(struct trace *t)
{
	u32 part = t->pages / t->arg, i, j;

	for (i = 0; i < part; i++)
		for (j = 0; j < t->arg; j++)
			add(t, j * part + i);
}

/* A stream, and after each of its pages a page of a sparse half. */
static void make_mixed(struct trace *t)
{
	u32 half = t->pages / 2, n = half / t->arg, *list = malloc(n * sizeof(*list)), i;

	for (i = 0; i < n; i++)
		list[i] = half + i * t->arg + rand_below(t->arg);
	shuffle(list, n);
	for (i = 0; i < half; i++) {
		add(t, i);
		if (i < n)
			add(t, list[i]);
	}
	free(list);
}

/* Dense, then sparse (one page in @arg), then dense again. */
static void make_phased(struct trace *t)
{
	u32 third = t->pages / 4, i, start;

	for (i = 0; i < third; i++)
		add(t, i);
	start = t->nr;
	for (i = 0; i < 2 * third; i += t->arg)
		add(t, third + i + rand_below(t->arg));
	shuffle(t->gfn + start, t->nr - start);
	start = t->nr;
	for (i = 0; i < third; i++)
		add(t, 3 * third + i);
	shuffle(t->gfn + start, t->nr - start);
}

/*
 * A working set of one page in @arg, at random places, in runs of up to eight;
 * accessed in proportion to 1/rank.
 */
static void make_zipf(struct trace *t)
{
	u32 n = t->pages / t->arg, *set = malloc((n + 8) * sizeof(*set)), nr = 0, i, run, gfn;
	double *sum = malloc((n + 8) * sizeof(*sum)), total = 0, x;
	u8 *used = calloc(t->pages + 8, 1);
	u32 lo, hi, mid;

	while (nr < n) {
		gfn = rand_below(t->pages - 8);
		for (run = 1 + rand_below(8); run && nr < n; run--, gfn++) {
			if (!used[gfn]) {
				used[gfn] = 1;
				set[nr++] = gfn;
			}
		}
	}
	shuffle(set, nr);
	for (i = 0; i < nr; i++)
		sum[i] = total += 1.0 / (i + 1);
	for (i = 0; i < 8 * nr; i++) {
		x = total * rand_below(1u << 30) / (1u << 30);
		for (lo = 0, hi = nr - 1; lo < hi; ) {
			mid = (lo + hi) / 2;
			if (sum[mid] <= x)
				lo = mid + 1;
			else
				hi = mid;
		}
		add(t, set[lo]);
	}
	free(set);
	free(sum);
	free(used);
}

#define MIB(n)	((n) * 256u)

static struct trace traces[] = {
	{ "forward",			make_forward, MIB(64), 0, 0, 1 },
	{ "reverse",			make_reverse, MIB(64), 0, 0, 1 },
	{ "strided-16",			make_strided, MIB(64), 16, 0, 1 },
	{ "strided-7",			make_strided, MIB(64), 7, 0, 1 },
	{ "streams-4",			make_streams, MIB(64), 4, 0, 1 },
	{ "streams-12",			make_streams, MIB(96), 12, 0, 1 },
	{ "random",			make_random, MIB(64), 0, 0, 1 },
	{ "random-16m",			make_random, MIB(16), 0, 0, 1 },
	{ "random-256m",		make_random, MIB(256), 0, 0, 1 },
	{ "random-1g",			make_random, MIB(1024), 0, 0, 1 },
	{ "random-2vcpu",		make_random, MIB(64), 0, 0, 2 },
	{ "random-4vcpu",		make_random, MIB(64), 0, 0, 4 },
	{ "forward-4vcpu",		make_forward, MIB(64), 0, 0, 4 },
	{ "sparse-16",			make_sparse, MIB(64), 16, 0, 1 },
	{ "sparse-16-4vcpu",		make_sparse, MIB(64), 16, 0, 4 },
	{ "sparse-64",			make_sparse, MIB(256), 64, 0, 1 },
	{ "sparse-512",			make_sparse, MIB(1024), 512, 0, 1 },
	{ "sparse-16-forward",		make_sparse_forward, MIB(64), 16, 0, 1 },
	{ "sparse-64-forward",		make_sparse_forward, MIB(256), 64, 0, 1 },
	{ "scattered-4",		make_scattered, MIB(64), 4, 0, 1 },
	{ "scattered-16",		make_scattered, MIB(64), 16, 0, 1 },
	{ "scattered-64",		make_scattered, MIB(256), 64, 0, 1 },
	{ "objects-16",			make_objects, MIB(64), 16, 0, 1 },
	{ "objects-64",			make_objects, MIB(64), 64, 0, 1 },
	{ "mixed-64",			make_mixed, MIB(128), 64, 0, 1 },
	{ "phased-64",			make_phased, MIB(256), 64, 0, 1 },
	{ "phased-512",			make_phased, MIB(1024), 512, 0, 1 },
	{ "zipf-4",			make_zipf, MIB(64), 4, 0, 1 },
	{ "zipf-16",			make_zipf, MIB(256), 16, 0, 1 },
	{ "uffd-4k-forward",		make_forward, MIB(64), 0, 1, 1 },
	{ "uffd-4k-random",		make_random, MIB(64), 0, 1, 1 },
	{ "uffd-16k-random",		make_random, MIB(64), 0, 4, 1 },
	{ "uffd-64k-forward",		make_forward, MIB(64), 0, 16, 1 },
	{ "uffd-64k-reverse",		make_reverse, MIB(64), 0, 16, 1 },
	{ "uffd-64k-random",		make_random, MIB(64), 0, 16, 1 },
	{ "uffd-64k-sparse-16",		make_sparse, MIB(64), 16, 16, 1 },
	{ "uffd-512k-random",		make_random, MIB(64), 0, 128, 1 },
	{ "uffd-2m-forward",		make_forward, MIB(64), 0, 512, 1 },
	{ "uffd-2m-random",		make_random, MIB(64), 0, 512, 1 },
	{ "uffd-2m-sparse-16",		make_sparse, MIB(64), 16, 512, 1 },
};

static u32 gfns[4 * NR_PAGES_MAX];
static u8 file_vcpus[4 * NR_PAGES_MAX];

/* The host's and KVM's page tables. */
enum { PRESENT = 1, MAPPED = 2, USED = 4 };

static u8 page[NR_PAGES_MAX + 512];

/* What came of a window. */
struct window {
	u32 gfn;
	u32 first;
	u32 last;
	u32 mapped;
	u32 absent;
};

/* State of all policies, one for each vCPU. */
struct state {
	struct kvm_prefault_policy kernel;
	u64 recent[16];
	u32 next;
	u32 order;
	u32 backoff;
	u32 skip;
	u32 gfn;
	u32 wasted;
};

struct policy {
	const char *name;
	/* Log2 of the window, 0 for none. */
	unsigned int (*begin)(struct state *s, u32 gfn);
	void (*end)(struct state *s, const struct window *w);
	/* Instructions of one decision. */
	unsigned int price;
};

static bool skipped(struct state *s)
{
	if (!s->skip)
		return false;
	s->skip--;
	return true;
}

static void back_off(struct state *s, const struct window *w)
{
	s->backoff = w->mapped ? 0 : clamp(s->backoff * 2, 1u, 64u);
	s->skip = s->backoff;
}

static unsigned int off_begin(struct state *s, u32 gfn)
{
	return 0;
}

static unsigned int fixed_begin(struct state *s, u32 gfn)
{
	return MAX_ORDER;
}

static void no_end(struct state *s, const struct window *w)
{
}

/* Grows after a fault near the last window, shrinks after one elsewhere. */
static unsigned int last_begin(struct state *s, u32 gfn)
{
	u32 distance = gfn > s->gfn ? gfn - s->gfn : s->gfn - gfn;

	if (skipped(s))
		return 0;

	s->order = max(s->order, 3u);
	if (distance <= 2u << s->order)
		s->order = min(s->order + 1, 9u);
	else if (s->order > 3)
		s->order--;
	s->gfn = gfn;
	return s->order;
}

/*
 * Looks at the accessed bits of each window when sixteen others have followed,
 * or, where windows are not made, after as many faults.
 */
static u32 model_look;

static unsigned int accessed_begin(struct state *s, u32 gfn)
{
	u64 *old = s->recent + s->next;
	u32 order, start, i, young = 0;

	if (skipped(s))
		return 0;

	if (!s->order)
		s->order = 3;
	if (*old) {
		order = *old & 15;
		start = *old >> 8 & ~((1u << order) - 1);
		for (i = start; i < start + (1u << order); i++)
			young += i != *old >> 8 && (page[i] & USED);
		model_look += PRICE_WINDOW / 2 + (1u << order) * PRICE_ENTRY / 10;
		if (young && s->order < 9) {
			s->order++;
			s->wasted = 0;
		} else if (!young) {
			s->wasted += 1u << order;
			if (s->wasted >= 4096 && s->order > 3) {
				s->order--;
				s->wasted = 0;
			}
		}
	}
	*old = 0;
	/* What is next to the last window needs no accessed bits. */
	if ((gfn > s->gfn ? gfn - s->gfn : s->gfn - gfn) <= 2u << s->order && s->order < 9)
		s->order++;
	s->gfn = gfn;
	/* Probe with one window in sixteen where none has been any use. */
	if (s->order == 3 && s->wasted >= 256 && ++s->backoff % 16)
		return 0;
	*old = (u64)gfn << 8 | s->order;
	s->next = (s->next + 1) % 16;
	return s->order;
}

static void accessed_end(struct state *s, const struct window *w)
{
	s->skip = 0;
	if (!w->mapped) {
		s->order = 3;
		s->skip = 16;
	}
}

static unsigned int kernel_begin(struct state *s, u32 gfn)
{
	if (kvm_prefault_backoff(&s->kernel))
		return 0;
	return kvm_prefault_policy_begin(&s->kernel, gfn, MAX_ORDER);
}

static void kernel_end(struct state *s, const struct window *w)
{
	kvm_prefault_policy_end(&s->kernel, w->gfn, w->first, w->last, w->mapped,
				w->absent);
}

static const struct policy policies[] = {
	{ "off", off_begin, no_end, 0 },
	{ "fixed", fixed_begin, no_end, 0 },
	{ "last", last_begin, back_off, 20 },
	{ "accessed", accessed_begin, accessed_end, 40 },
	{ "kernel", kernel_begin, kernel_end, 30 + 6 * KVM_PREFAULT_RECENT },
};

struct result {
	double price;
	double exits;
	double mapped;
	double unused;
	double windows;
};

static u64 serve(struct state *s, const struct policy *p, const struct trace *t, u32 gfn,
		 struct result *r)
{
	struct window w = { .gfn = gfn };
	u64 price = p->price;
	unsigned int order, looks;
	u32 i, start;

	/* A fault that is skipped costs next to nothing. */
	looks = s->skip || s->kernel.skip;
	order = p->begin(s, gfn);
	if (!order)
		return looks ? PRICE_SKIP : price;

	r->windows++;
	price += PRICE_WINDOW;
	start = gfn & ~((1u << order) - 1);
	for (i = start; i < start + (1u << order); i++) {
		price += PRICE_ENTRY;
		if (i >= t->pages || page[i] & MAPPED)
			continue;
		if (!(page[i] & PRESENT)) {
			w.absent++;
			continue;
		}
		page[i] |= MAPPED;
		price += PRICE_MAP;
		w.first = w.mapped ? w.first : i;
		w.last = i;
		w.mapped++;
	}
	r->mapped += w.mapped;
	p->end(s, &w);
	return price;
}

static void run(const struct policy *p, const struct trace *t, struct result *r)
{
	static struct state states[MAX_VCPUS];
	u32 i, j, gfn, start;
	u64 price = 0;

	memset(states, 0, sizeof(states));
	memset(page, t->chunk ? 0 : PRESENT, sizeof(page));
	model_look = 0;

	for (i = 0; i < t->nr; i++) {
		gfn = t->gfn[i];
		if (!(page[gfn] & USED))
			price += PRICE_TOUCH;
		page[gfn] |= USED;
		if (page[gfn] & MAPPED)
			continue;
		r->exits++;
		price += PRICE_EXIT;
		if (!(page[gfn] & PRESENT)) {
			start = gfn / t->chunk * t->chunk;
			for (j = start; j < start + t->chunk; j++)
				page[j] |= PRESENT;
			price += PRICE_UFFD + t->chunk * PRICE_COPY;
		}
		page[gfn] |= MAPPED;
		price += serve(states + (t->vcpu ? t->vcpu[i] : i % t->vcpus), p, t, gfn, r);
	}
	for (i = 0; i < t->pages; i++)
		r->unused += (page[i] & (MAPPED | USED)) == MAPPED;
	r->price += price + model_look;
}

static void load(struct trace *t, const char *name)
{
	FILE *f = fopen(name, "r");
	unsigned long gfn, vcpu;

	if (!f) {
		perror(name);
		exit(1);
	}
	t->vcpu = file_vcpus;
	while (fscanf(f, "%lu %lu", &vcpu, &gfn) == 2) {
		if (vcpu >= MAX_VCPUS || gfn >= NR_PAGES_MAX) {
			fprintf(stderr, "%s: vCPUs up to %u and gfns below %u\n", name,
				MAX_VCPUS - 1, NR_PAGES_MAX);
			exit(1);
		}
		file_vcpus[t->nr] = vcpu;
		add(t, gfn);
		t->pages = max(t->pages, (u32)gfn + 1);
	}
	fclose(f);
}

static void report(struct trace *t, const char *only, int seeds, const char *file)
{
	struct result base = {}, r;
	unsigned int i;
	int seed;

	for (i = 0; i < sizeof(policies) / sizeof(*policies); i++) {
		if (only && i && strcmp(only, policies[i].name))
			continue;
		memset(&r, 0, sizeof(r));
		for (seed = 1; seed <= seeds; seed++) {
			rng = seed * 0x9e3779b97f4a7c15ULL;
			t->nr = 0;
			t->gfn = gfns;
			if (file)
				load(t, file);
			else
				t->make(t);
			run(policies + i, t, &r);
		}
		if (!i)
			base = r;
		printf("%s\t%s\t%.3f\t%.0f\t%.0f\t%.0f\t%.0f\n", t->name,
		       policies[i].name, r.price / base.price, r.exits / seeds,
		       r.windows / seeds, r.mapped / seeds, r.unused / seeds);
	}
}

int main(int argc, char *argv[])
{
	struct trace file_trace = { .name = "file", .vcpus = 1 };
	const char *only = NULL, *name = NULL, *file = NULL;
	unsigned int i, found = 0;
	int opt, seeds = 3;

	while ((opt = getopt(argc, argv, "lt:p:r:f:")) != -1) {
		switch (opt) {
		case 'l':
			for (i = 0; i < sizeof(traces) / sizeof(*traces); i++)
				puts(traces[i].name);
			return 0;
		case 't':
			name = optarg;
			break;
		case 'p':
			only = optarg;
			break;
		case 'r':
			seeds = atoi(optarg);
			break;
		case 'f':
			file = optarg;
			break;
		default:
			fprintf(stderr, "usage: %s [-l] [-t TRACE] [-p POLICY] [-r SEEDS] [-f FILE]\n",
				argv[0]);
			return 1;
		}
	}
	if (seeds < 1)
		seeds = 1;
	printf("trace\tpolicy\tratio\texits\twindows\tmapped\tunused\n");
	if (file) {
		report(&file_trace, only, 1, file);
		return 0;
	}
	for (i = 0; i < sizeof(traces) / sizeof(*traces); i++) {
		if (name && strcmp(name, traces[i].name))
			continue;
		report(traces + i, only, seeds, NULL);
		found++;
	}
	if (!found) {
		fprintf(stderr, "no trace '%s' (-l lists them)\n", name);
		return 1;
	}
	return 0;
}
