// SPDX-License-Identifier: GPL-2.0
/*
 * QEMU TCG plugin: counts the guest instructions of each translation block
 * between the first time that one address is executed and the first time after
 * it that another one is. Prints "ADDRESS INSTRUCTIONS" lines.
 *
 * Arguments: start=ADDRESS, stop=ADDRESS, out=FILE; again=N: each time, but for
 * the first N ones.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_plugin.h"

struct block {
	uint64_t addr;
	uint64_t nr;
	uint64_t insns;
	struct block *next;
};

#define BUCKETS		65536

static struct block *buckets[BUCKETS];
static uint64_t start, stop;
static long skip;
static bool again;
static const char *out;
static enum { BEFORE, COUNTING, AFTER } phase;

static void on_exec(unsigned int vcpu, void *data)
{
	struct block *b = data;

	if (phase == BEFORE && b->addr == start && skip-- <= 0)
		phase = COUNTING;
	else if (phase == COUNTING && b->addr == stop)
		phase = again ? BEFORE : AFTER;
	if (phase == COUNTING)
		b->insns += b->nr;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t addr = qemu_plugin_tb_vaddr(tb), nr = qemu_plugin_tb_n_insns(tb);
	struct block **at = buckets + (addr >> 1) % BUCKETS, *b;

	for (b = *at; b; b = b->next)
		if (b->addr == addr && b->nr == nr)
			break;
	if (!b) {
		b = calloc(1, sizeof(*b));
		if (!b)
			abort();
		b->addr = addr;
		b->nr = nr;
		b->next = *at;
		*at = b;
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_exec, 0, b);
}

static void write_counts(qemu_plugin_id_t id, void *data)
{
	FILE *f = fopen(out, "w");
	struct block *b;
	int i;

	if (!f)
		return;
	for (i = 0; i < BUCKETS; i++)
		for (b = buckets[i]; b; b = b->next)
			if (b->insns)
				fprintf(f, "%016lx %lu\n", (unsigned long)b->addr,
					(unsigned long)b->insns);
	fclose(f);
}

__attribute__((visibility("default")))
int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv)
{
	int i;

	for (i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "start=", 6))
			start = strtoull(argv[i] + 6, NULL, 16);
		else if (!strncmp(argv[i], "stop=", 5))
			stop = strtoull(argv[i] + 5, NULL, 16);
		else if (!strncmp(argv[i], "again=", 6))
			again = true, skip = atol(argv[i] + 6);
		else if (!strncmp(argv[i], "out=", 4))
			out = strdup(argv[i] + 4);
	}
	if (!start || !stop || !out) {
		fprintf(stderr, "count: start, stop and out are needed\n");
		return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, write_counts, NULL);
	return 0;
}
