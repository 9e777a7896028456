// SPDX-License-Identifier: GPL-2.0-only
/*
 * prefault_stress_test: what tracepoints say of windows and of migrated pages.
 *
 * The statistics of a vCPU do not tell stale batches from those that found their
 * entries occupied, nor one memslot from another, and nothing else tells a page
 * that was migrated.  Each tally is a trace instance of its own, so that nobody
 * else's tracing is disturbed.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "prefault_stress.h"

#define INSTANCES	"/sys/kernel/tracing/instances/"
/* Of KVM's enum kvm_prefault_stop. */
#define REASON_STALE	4

static const struct {
	const char *name;
	const char *event;
	const char *key;
	const char *value;
} tallies[] = {
	[TALLY_ALL] = { "stress_all", "kvm/kvm_prefault", "reason", "mapped" },
	[TALLY_LOGGED] = { "stress_logged", "kvm/kvm_prefault", "reason", "mapped" },
	[TALLY_MIGRATED] = { "stress_migrated", "migrate/mm_migrate_pages", "reason",
			     "succeeded" },
};

static void path_of(enum tally_of of, const char *file, char *path, size_t size)
{
	snprintf(path, size, INSTANCES "%s", tallies[of].name);
	if (!file)
		return;
	snprintf(path + strlen(path), size - strlen(path), "/events/%s/%s",
		 tallies[of].event, file);
}

static void filter_of(enum tally_of of, char *text, size_t size)
{
	u64 gfn = PREFAULT_GPA / st.page_size + LOG;

	*text = 0;
	if (of == TALLY_LOGGED)
		snprintf(text, size, " if gfn >= %lu && gfn < %lu", gfn, gfn + REGION_PAGES);
}

static bool tell(enum tally_of of, const char *action)
{
	char path[160], filter[64], text[256];

	filter_of(of, filter, sizeof(filter));
	snprintf(text, sizeof(text), "hist:keys=%s:vals=%s%s%s", tallies[of].key,
		 tallies[of].value, action, filter);
	path_of(of, "trigger", path, sizeof(path));
	return prefault_write_file(path, text);
}

static void remove_tally(enum tally_of of)
{
	char path[160];
	int fd;

	/* What is counted keeps it busy: remove that first. */
	path_of(of, "trigger", path, sizeof(path));
	fd = open(path, O_WRONLY | O_TRUNC);
	if (fd >= 0)
		close(fd);
	path_of(of, NULL, path, sizeof(path));
	rmdir(path);
}

static bool make_tally(enum tally_of of)
{
	char path[160];

	/* One of a run that was killed is in the way. */
	remove_tally(of);
	path_of(of, NULL, path, sizeof(path));
	return !mkdir(path, 0755) && tell(of, of == TALLY_LOGGED ? ":pause" : "");
}

bool tally_begin(void)
{
	if (make_tally(TALLY_ALL) && make_tally(TALLY_LOGGED) && make_tally(TALLY_MIGRATED))
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
	struct tally t = {};
	char path[160], line[256];
	u64 hits, value;
	u32 key;
	FILE *f;

	path_of(of, "hist", path, sizeof(path));
	f = fopen(path, "r");
	if (!f)
		return t;

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "{ %*[^:]: %u } hitcount: %lu %*[^:]: %lu", &key, &hits,
			   &value) != 3)
			continue;
		t.pages += value;
		if (key == REASON_STALE)
			t.stale += hits;
	}
	fclose(f);
	return t;
}

void tally_end(void)
{
	remove_tally(TALLY_ALL);
	remove_tally(TALLY_LOGGED);
	remove_tally(TALLY_MIGRATED);
}
