// SPDX-License-Identifier: GPL-2.0
/* Messages and numbers. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvm-prefault.h"

static void say(const char *fmt, va_list ap)
{
	char line[LINE_LEN];

	/* One write for one line: run's helper shares stderr with the VMM. */
	vsnprintf(line, sizeof(line), fmt, ap);
	fprintf(stderr, "kvm-prefault: %s\n", line);
}

int fail(enum status status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);

	return status;
}

void warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

bool parse_number(const char *s, long min, long max, long *value)
{
	char *end;

	errno = 0;
	*value = strtol(s, &end, 10);

	return !errno && end != s && !*end && *value >= min && *value <= max;
}

/* A number of bytes, or of K, M or G. */
bool parse_size(const char *s, uint64_t *size)
{
	unsigned int shift = 0;
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	*size = strtoull(s, &end, 0);
	switch (*end) {
	case 'g':
	case 'G':
		shift += 10;
		/* fall through */
	case 'm':
	case 'M':
		shift += 10;
		/* fall through */
	case 'k':
	case 'K':
		shift += 10;
		end++;
	}
	if (errno || *end || *size > UINT64_MAX >> shift)
		return false;
	*size <<= shift;

	return true;
}

const char *size_name(uint64_t size, char buf[24])
{
	static const char units[] = { 0, 'K', 'M', 'G' };
	unsigned int unit = 0;

	if (!size)
		return "off";
	while (unit < 3 && !(size & 1023)) {
		size >>= 10;
		unit++;
	}
	snprintf(buf, 24, "%llu%c", (unsigned long long)size, units[unit]);

	return buf;
}
