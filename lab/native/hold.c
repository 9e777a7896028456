// SPDX-License-Identifier: GPL-2.0
/*
 * QEMU TCG plugin: how long a lock is held during certain operations, in
 * instructions of the processor that holds it. Prints a line for each operation:
 * its holds, the longest one's instructions, and how often a step was made then.
 *
 * Arguments, all but the last one addresses of functions: lock, unlock; mark,
 * called during the first hold of an operation; end, called when it is over; step,
 * which may be left out; spin and spinend, the function in which a processor waits
 * for the lock, and what is behind it: what comes before is not counted; out=FILE.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_plugin.h"

#define MAX_VCPUS	16

enum what { NOTHING, LOCK, UNLOCK, MARK, END, STEP, SPIN, SPIN_END, WAITING };

static const char *const names[] = {
	[LOCK] = "lock=", [UNLOCK] = "unlock=", [MARK] = "mark=", [END] = "end=",
	[STEP] = "step=", [SPIN] = "spin=", [SPIN_END] = "spinend=",
};

#define NR_NAMES	(sizeof(names) / sizeof(names[0]))

static uint64_t address[NR_NAMES];
static FILE *out;

static struct {
	bool held;
	bool marked;
	uint64_t insns;
	uint64_t steps;
	uint64_t holds;
	uint64_t max;
	uint64_t max_steps;
} cpus[MAX_VCPUS];

/* In a word: what a block is that begins a function of ours, and its length. */
static void on_exec(unsigned int vcpu, void *data)
{
	enum what what = (uintptr_t)data & 0xff;
	uint64_t insns = (uintptr_t)data >> 8;

	if (vcpu >= MAX_VCPUS)
		abort();

	switch (what) {
	case LOCK:
		cpus[vcpu].held = true;
		cpus[vcpu].insns = 0;
		cpus[vcpu].steps = 0;
		break;
	case UNLOCK:
		if (cpus[vcpu].held && cpus[vcpu].marked) {
			cpus[vcpu].holds++;
			if (cpus[vcpu].insns > cpus[vcpu].max) {
				cpus[vcpu].max = cpus[vcpu].insns;
				cpus[vcpu].max_steps = cpus[vcpu].steps;
			}
		}
		cpus[vcpu].held = false;
		break;
	case MARK:
		cpus[vcpu].marked = cpus[vcpu].held;
		break;
	case END:
		if (cpus[vcpu].marked)
			fprintf(out, "%lu %lu %lu\n", (unsigned long)cpus[vcpu].holds,
				(unsigned long)cpus[vcpu].max,
				(unsigned long)cpus[vcpu].max_steps);
		cpus[vcpu].marked = false;
		cpus[vcpu].holds = 0;
		cpus[vcpu].max = 0;
		break;
	case STEP:
		cpus[vcpu].steps++;
		break;
	case WAITING:
		/* It does not hold the lock yet. */
		cpus[vcpu].insns = 0;
		return;
	default:
		break;
	}
	cpus[vcpu].insns += insns;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t addr = qemu_plugin_tb_vaddr(tb);
	uintptr_t data = (uintptr_t)qemu_plugin_tb_n_insns(tb) << 8;
	enum what what;

	for (what = LOCK; what < SPIN; what++)
		if (addr == address[what])
			data |= what;
	if (addr >= address[SPIN] && addr < address[SPIN_END])
		data |= WAITING;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_exec, 0, (void *)data);
}

static void at_exit(qemu_plugin_id_t id, void *data)
{
	fclose(out);
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv)
{
	enum what what;
	size_t len;
	int i;

	for (i = 0; i < argc; i++) {
		for (what = LOCK; what < NR_NAMES; what++) {
			len = strlen(names[what]);
			if (!strncmp(argv[i], names[what], len))
				address[what] = strtoull(argv[i] + len, NULL, 16);
		}
		if (!strncmp(argv[i], "out=", 4))
			out = fopen(argv[i] + 4, "w");
	}
	for (what = LOCK; what < NR_NAMES; what++) {
		if (!out || (!address[what] && what != STEP)) {
			fprintf(stderr, "hold: %s and out= are needed\n", names[what]);
			return 1;
		}
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
	return 0;
}
