// SPDX-License-Identifier: GPL-2.0
/* What this host offers. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "kvm-prefault.h"

#define MODULE_PARAM	"/sys/module/kvm/parameters/auto_prefault_size"

void host_read(struct host *host)
{
	FILE *f = fopen(MODULE_PARAM, "re");
	int fd;

	memset(host, 0, sizeof(*host));
	if (f) {
		host->has_module_param =
			fscanf(f, "%" SCNu64, &host->module_default) == 1;
		fclose(f);
	}

	fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	host->kvm = fd >= 0 || (errno != ENOENT && errno != ENXIO &&
				errno != ENODEV);
	if (fd < 0) {
		host->error = errno;
		host->max = host->has_module_param ? -1 : 0;
		return;
	}
	host->max = ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_AUTO_PREFAULT);
	if (host->max < 0)
		host->max = 0;
	close(fd);
}

int cmd_probe(int argc, char **argv)
{
	struct host host;
	char buf[24];

	if (argc > 1)
		return fail(ST_USAGE, "probe takes no arguments, not '%s'",
			    argv[1]);

	host_read(&host);
	if (!host.kvm)
		return fail(ST_NO_KVM, "this host has no KVM (/dev/kvm: %s)",
			    strerror(host.error));
	if (!host.max)
		return fail(ST_NO_CAP, "this kernel's KVM has no auto-prefault");

	if (host.max < 0)
		printf("maximum:        not known (/dev/kvm: %s)\n",
		       strerror(host.error));
	else
		printf("maximum:        %s\n", size_name(host.max, buf));
	if (host.has_module_param)
		printf("module default: %s\n",
		       size_name(host.module_default, buf));
	else
		printf("module default: not known\n");

	return ST_OK;
}
