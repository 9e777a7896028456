// SPDX-License-Identifier: GPL-2.0
/*
 * cputime PID: prints for how many nanoseconds a process has run on processors,
 * its guests included.  Under QEMU's -icount these are instructions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	struct timespec t;
	clockid_t clock;

	if (argc != 2 || clock_getcpuclockid(atoi(argv[1]), &clock) ||
	    clock_gettime(clock, &t)) {
		fprintf(stderr, "cputime: no such process\n");
		return 1;
	}
	printf("%lld\n", t.tv_sec * 1000000000ll + t.tv_nsec);

	return 0;
}
