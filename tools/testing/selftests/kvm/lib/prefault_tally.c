// SPDX-License-Identifier: GPL-2.0-only
/*
 * prefault_stress_test: what KVM's tracepoint says of its windows.
 *
 * The statistics of a vCPU do not tell stale batches from those that found their
 * entries occupied, nor one memslot from another.  Each tally is a trace instance
 * of its own, so that nobody else's tracing is disturbed.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "prefault_stress.h"

#define INSTANCES	"/sys/kernel/tracing/instances/"
#define EVENT		"/events/kvm/kvm_prefault/"

/* Of KVM's enum kvm_prefault_stop. */
#define REASON_STALE	4

static const char * const names[] = {
	[TALLY_ALL] = "prefault_stress_all",
	[TALLY_LOGGED] = "prefault_stress_logged",
};

static void filter_of(enum tally_of of, char *text, size_t size)
{
	u64 gfn = PREFAULT_GPA / st.page_size + LOG;

	*text = 0;
	if (of == TALLY_LOGGED)
		snprintf(text, size, " if gfn >= %lu && gfn < %lu", gfn, gfn + REGION_PAGES);
}

static bool tell(enum tally_of of, const char *action)
{
	char path[128], filter[64], text[256];
	int fd, len;
	bool ok;

	filter_of(of, filter, sizeof(filter));
	len = snprintf(text, sizeof(text), "hist:keys=reason:vals=mapped%s%s", action, filter);
	snprintf(path, sizeof(path), INSTANCES "%s" EVENT "trigger", names[of]);
	/* Not by stdio, which would truncate it: that removes what there is. */
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return false;
	ok = write(fd, text, len) == len;
	close(fd);
	return ok;
}

static void remove_instance(enum tally_of of)
{
	char path[128];
	int fd;

	/* What is counted keeps it busy: remove that first. */
	snprintf(path, sizeof(path), INSTANCES "%s" EVENT "trigger", names[of]);
	fd = open(path, O_WRONLY | O_TRUNC);
	if (fd >= 0)
		close(fd);
	snprintf(path, sizeof(path), INSTANCES "%s", names[of]);
	rmdir(path);
}

static bool make_instance(enum tally_of of)
{
	char path[128];

	/* One of a run that was killed is in the way. */
	remove_instance(of);
	snprintf(path, sizeof(path), INSTANCES "%s", names[of]);
	return !mkdir(path, 0755);
}

bool tally_begin(void)
{
	if (make_instance(TALLY_ALL) && tell(TALLY_ALL, "") &&
	    make_instance(TALLY_LOGGED) && tell(TALLY_LOGGED, ":pause"))
		return true;

	tally_end();
	return false;
}

void tally_set_logged(bool on)
{
	tell(TALLY_LOGGED, on ? ":cont" : ":pause");
}

struct tally tally_read(enum tally_of of)
{
	char path[128], line[256];
	struct tally t = {};
	u64 hits, mapped;
	u32 reason;
	FILE *f;

	snprintf(path, sizeof(path), INSTANCES "%s" EVENT "hist", names[of]);
	f = fopen(path, "r");
	if (!f)
		return t;

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "{ reason: %u } hitcount: %lu mapped: %lu", &reason, &hits,
			   &mapped) != 3)
			continue;
		t.mapped += mapped;
		if (reason == REASON_STALE)
			t.stale += hits;
	}
	fclose(f);
	return t;
}

void tally_end(void)
{
	remove_instance(TALLY_ALL);
	remove_instance(TALLY_LOGGED);
}
