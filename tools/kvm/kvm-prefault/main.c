// SPDX-License-Identifier: GPL-2.0
/*
 * kvm-prefault: auto-prefault for VMs whose VMM knows nothing about it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "kvm-prefault.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "run", cmd_run },
	{ "set", cmd_set },
	{ "stat", cmd_stat },
	{ "probe", cmd_probe },
};

static void usage(FILE *f)
{
	fputs("usage: kvm-prefault run [--size SIZE] [--fixed] [--verbose] -- VMM [ARG]...\n"
	      "       kvm-prefault set PID [--size SIZE|off] [--fixed] [--vm FD]\n"
	      "       kvm-prefault stat PID [-i SECONDS] [-n TIMES] [--json]\n"
	      "       kvm-prefault probe\n", f);
}

int main(int argc, char **argv)
{
	unsigned int i;

	if (argc < 2) {
		usage(stderr);
		return ST_USAGE;
	}
	if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help")) {
		usage(stdout);
		return ST_OK;
	}

	for (i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	}

	return fail(ST_USAGE, "unknown command '%s' (run, set, stat, probe)",
		    argv[1]);
}
