// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_CAP_AUTO_PREFAULT under many disturbances at once
 *
 * Several vCPUs read and write self-checking pages all the time, while threads
 * do to the memory and to the VM whatever a host may do (prefault_stress.h says
 * what has to be true, lib/prefault_disturb.c what is done).
 *
 * A run is a row of lives, each a process with a VM.  Most end when their time is
 * over, are checked and give back what they have; those between them are killed.
 * All that is random in a life follows from the seed and from its number.  The
 * order in which threads run does not: a seed replays what is done, not how it
 * interleaves.
 *
 * In the end no memory and no page table may be missing, and what the run is for
 * must have happened: a run that has lost no race proves nothing.
 */
#include <linux/bitmap.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "prefault_stress.h"
#include "prefault_vm.h"
#include "ucall_common.h"

#define LIFE_SECONDS	6
/* Of so many lives one has all disturbers and vCPUs, the others have some. */
#define LIVES_WITH_ALL	4
#define KILLED_MS	1000
#define KSM		"/sys/kernel/mm/ksm/"

static struct {
	u32 seed;
	u32 seconds;
	bool has_ring;
	bool has_tally;
	bool has_ksm;
	bool has_swap;
	u32 nr_lives, nr_killed;
	u64 tables;
} run;

/*
 * vCPUs.
 */

static void pre_fault(struct stress_vcpu *v)
{
	static const u64 regions[] = { KEEP, REFILL, HOT };
	struct kvm_pre_fault_memory range;
	u64 page, nr;
	int ret;

	/* In LOG base reports what it faults in for this: leave it alone. */
	page = random_below(&v->rng, REGION_PAGES);
	nr = 1 + random_below(&v->rng, GROUP - page % GROUP);
	page += regions[random_below(&v->rng, ARRAY_SIZE(regions))];
	range = (struct kvm_pre_fault_memory){
		.gpa = PREFAULT_GPA + page * st.page_size,
		.size = nr * st.page_size,
	};
	ret = __vcpu_ioctl(v->vcpu, KVM_PRE_FAULT_MEMORY, &range);
	/* ENOENT: the memslot is not there. */
	TEST_ASSERT(!ret || errno == EINTR || errno == EAGAIN || errno == EFAULT ||
		    errno == ENOENT, KVM_IOCTL_ERROR(KVM_PRE_FAULT_MEMORY, ret));
	count(&st.sum->pre_faulted);
}

/* Only memory that is protected, or a signal, makes KVM_RUN fail. */
static void expect_error(int error)
{
	TEST_ASSERT(error == EINTR || error == EFAULT,
		    "KVM_RUN should not fail with errno %d", error);
	count(error == EINTR ? &st.sum->kicked : &st.sum->faulted);
}

/* The guest does not look at what it reads while the memslot is not there. */
static void handle_mmio(struct kvm_run *kvm_run)
{
	u64 gpa = kvm_run->mmio.phys_addr;

	TEST_ASSERT(gpa >= PREFAULT_GPA + REFILL * st.page_size && !kvm_run->mmio.is_write,
		    "%s %lx should have found memory", kvm_run->mmio.is_write ?
		    "A store to" : "A load from", gpa);
	memset(kvm_run->mmio.data, 0xff, sizeof(kvm_run->mmio.data));
	count(&st.sum->mmio);
}

static bool handle_exit(struct kvm_run *kvm_run)
{
	switch (kvm_run->exit_reason) {
	case KVM_EXIT_DIRTY_RING_FULL:
		usleep(100);
		return true;
	case KVM_EXIT_MMIO:
		/* arm64's ucalls are MMIO as well. */
		if (kvm_run->mmio.phys_addr < PREFAULT_GPA)
			return false;
		handle_mmio(kvm_run);
		return true;
	}
	return false;
}

static void run_once(struct stress_vcpu *v)
{
	struct ucall uc;

	if (__vcpu_run(v->vcpu)) {
		expect_error(errno);
		return;
	}
	if (handle_exit(v->vcpu->run))
		return;

	switch (get_ucall(v->vcpu, &uc)) {
	case UCALL_SYNC:
		if (kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY))
			pre_fault(v);
		break;
	case UCALL_ABORT:
		REPORT_GUEST_ASSERT(uc);
		break;
	default:
		TEST_FAIL("Unexpected exit: %s", exit_reason_str(v->vcpu->run->exit_reason));
	}
}

static void *vcpu_thread(void *arg)
{
	struct stress_vcpu *v = arg;

	stress_be_important();
	while (!READ_ONCE(st.stop))
		run_once(v);
	WRITE_ONCE(v->running, false);
	return NULL;
}

/*
 * A life.
 */

static void do_nothing(int sig)
{
}

static void add_private(u32 i, gva_t shared)
{
	struct stress_vcpu *v = &st.vcpus[i];
	gva_t private = vm_alloc(st.vm, st.page_size, KVM_UTIL_MIN_VADDR);

	v->private = addr_gva2hva(st.vm, private);
	v->private->id = i;
	v->private->rng = new_kvm_random_state(random_below(&st.rng, 1000000) + 1);
	v->rng = new_kvm_random_state(random_below(&st.rng, 1000000) + 1);
	vcpu_args_set(v->vcpu, 2, private, shared);
}

static void create_vm(void)
{
	gva_t shared;
	u32 i;

	st.vm = __vm_create(VM_SHAPE_DEFAULT, st.nr_vcpus,
			    ALL_PAGES * st.page_size / MIN_PAGE_SIZE);
	if (st.log == LOG_RING)
		vm_enable_dirty_ring(st.vm, max_t(u64, 16384, st.page_size));
	if (st.log == LOG_CLEAR)
		vm_enable_cap(st.vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
			      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);
	prefault_virt_map(st.vm, PREFAULT_GPA, ALL_PAGES * st.page_size);
	for (i = 0; i < st.nr_vcpus; i++)
		st.vcpus[i].vcpu = vm_vcpu_add(st.vm, i, stress_guest_code);
	kvm_arch_vm_finalize_vcpus(st.vm);

	shared = vm_alloc(st.vm, align_up(sizeof(*st.shared), st.page_size),
			  KVM_UTIL_MIN_VADDR);
	st.shared = addr_gva2hva(st.vm, shared);
	memset(st.shared, 0, sizeof(*st.shared));
	st.shared->page_size = st.page_size;
	st.shared->nr_vcpus = st.nr_vcpus;
	for (i = 0; i < st.nr_vcpus; i++)
		add_private(i, shared);
}

static void create_memory(void)
{
	u64 page;
	u32 i;

	st.hva = prefault_mmap(ALL_PAGES * st.page_size, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	st.src = prefault_mmap(REGION_PAGES * st.page_size, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	st.dirty = bitmap_zalloc(REGION_PAGES);
	for (i = 0; i < ARRAY_SIZE(st.group); i++)
		pthread_mutex_init(&st.group[i], NULL);
	pthread_mutex_init(&st.protection, NULL);

	for (page = KEEP; page < REFILL; page++)
		*(u64 *)host_page(page) = stress_word(page, 0);
	for (page = REFILL; page < HOT; page++)
		*(u64 *)(st.src + (page - REFILL) * st.page_size) = stress_word(page, 0);
	for (page = HOT; page < HOT + HOT_PAGES; page++)
		*(u64 *)host_page(page) = stress_word(page, 0);
}

static void check_memory(void)
{
	u64 page;

	for (page = KEEP; page < REFILL; page++)
		TEST_ASSERT(stress_is_word(host_word(page), page, st.shared->confirmed[page],
					   st.shared->announced[page]),
			    "Page %lu is %lx at the end, should be generation %u", page,
			    host_word(page), st.shared->confirmed[page]);
	if (!st.logging)
		return;
	stress_update_shadow();
	for (page = 0; page < REGION_PAGES; page++)
		TEST_ASSERT(st.shadow[page] == host_word(LOG + page),
			    "Page %lu is %lx in the copy, should be %lx", page,
			    st.shadow[page], host_word(LOG + page));
}

static void add_up(void)
{
	struct prefault_stats start = {}, end;
	u32 i;

	for (i = 0; i < st.nr_vcpus; i++) {
		prefault_read_stats(st.vcpus[i].vcpu, &end);
		prefault_add_stats(&st.sum->stats, &start, &end);
		st.sum->written += st.vcpus[i].private->written;
		st.sum->checked += st.vcpus[i].private->checked;
	}
}

static void start_vcpus(void)
{
	u32 i;

	for (i = 0; i < st.nr_vcpus; i++) {
		st.vcpus[i].running = true;
		kvm_pthread_create(&st.vcpus[i].thread, NULL, vcpu_thread, &st.vcpus[i]);
	}
}

static void stop_vcpus(void)
{
	u32 i;

	for (i = 0; i < st.nr_vcpus; i++) {
		while (READ_ONCE(st.vcpus[i].running)) {
			pthread_kill(st.vcpus[i].thread, SIGUSR1);
			usleep(1000);
		}
		kvm_pthread_join(st.vcpus[i].thread, NULL);
	}
}

/* In a process of its own, which is killed if there are no @seconds. */
static void live(u32 seconds, bool with_all)
{
	pthread_t handler;

	signal(SIGUSR1, do_nothing);
	if (!with_all) {
		disturbers_choose();
		st.nr_vcpus = 1 + random_below(&st.rng, st.nr_vcpus);
	}
	if (seconds && disturber_is_on("dirty"))
		count(&st.sum->logging_lives[st.log]);
	create_vm();
	create_memory();
	tally_set_logged(false);
	stress_set_slot(KEEP, 0);
	stress_set_slot(LOG, 0);
	stress_set_slot(REFILL, 0);
	stress_set_slot(HOT, 0);
	vm_set_prefault(st.vm, min(st.window, PREFAULT_PAGES_MAX * st.page_size),
			KVM_AUTO_PREFAULT_FIXED);
	if (disturber_is_on("ksm"))
		madvise(host_page(KEEP), REGION_PAGES * st.page_size, MADV_MERGEABLE);

	stress_start_refill(&handler);
	start_vcpus();
	disturbers_start();
	if (!seconds)
		for (;;)
			pause();
	sleep(seconds);

	/* Whoever may wait for another thread goes first. */
	WRITE_ONCE(st.stop, true);
	disturbers_stop();
	stop_vcpus();
	WRITE_ONCE(st.stop_handler, true);
	kvm_pthread_join(handler, NULL);

	check_memory();
	add_up();
	kvm_vm_free(st.vm);
}

/*
 * What the host has.
 */

static u64 read_number(const char *path)
{
	FILE *f = fopen(path, "r");
	u64 value = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%lu", &value) != 1)
		value = 0;
	fclose(f);
	return value;
}

static bool write_number(const char *path, u64 value)
{
	char text[24];

	snprintf(text, sizeof(text), "%lu", value);
	return prefault_write_file(path, text);
}

static u64 read_vmstat(const char *name)
{
	char line[128], word[64];
	u64 value, found = 0;
	FILE *f;

	/* Collects what the processors have not added up yet. */
	write_number("/proc/sys/vm/stat_refresh", 1);
	f = fopen("/proc/vmstat", "r");
	TEST_ASSERT(f, "Cannot open /proc/vmstat");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %lu", word, &value) == 2 && !strcmp(word, name))
			found = value;
	fclose(f);
	return found;
}

static u64 free_bytes(void)
{
	/* What files are cached, and unused inodes, come and go. */
	write_number("/proc/sys/vm/drop_caches", 3);
	return read_vmstat("nr_free_pages") * getpagesize();
}

/* Tables are freed after a grace period. riscv's KVM does not account them. */
static void expect_no_tables(void)
{
	u32 tries;
	u64 nr;

	for (tries = 0; tries < 1000; tries++) {
		nr = read_vmstat("nr_sec_page_table_pages");
		if (nr <= run.tables)
			return;
		usleep(10000);
	}
	TEST_FAIL("Of all VMs %lu page-table pages are left", nr - run.tables);
}

/*
 * Free memory comes and goes: only what is missing after all of the last lives,
 * as compared to all of the first, is lost.
 */
static struct {
	u64 bytes[1024];
	u32 nr;
} samples;

static void sample_memory(void)
{
	expect_no_tables();
	if (samples.nr < ARRAY_SIZE(samples.bytes))
		samples.bytes[samples.nr++] = free_bytes();
}

static void expect_balance(void)
{
	u64 slack = ALL_PAGES * getpagesize(), before = -1ull, after = 0;
	u32 i, part = samples.nr / 3;

	for (i = 0; i < part; i++) {
		before = min(before, samples.bytes[i]);
		after = max(after, samples.bytes[samples.nr - 1 - i]);
	}
	if (!part)
		return;
	printf("free before %lu KiB, after %lu KiB\n", before / 1024, after / 1024);
	TEST_ASSERT(after + slack > before, "%lu KiB of memory are gone after %u lives",
		    (before - after) / 1024, samples.nr);
}

static u64 old_ksm[3];
static const char * const ksm_files[] = {
	KSM "pages_to_scan", KSM "sleep_millisecs", KSM "run",
};

static void restore_ksm(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ksm_files); i++)
		write_number(ksm_files[i], old_ksm[i]);
}

static bool start_ksm(void)
{
	static const u64 values[] = { 50, 20, 1 };
	bool ok = true;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ksm_files); i++)
		old_ksm[i] = read_number(ksm_files[i]);
	for (i = 0; i < ARRAY_SIZE(ksm_files); i++)
		ok = ok && write_number(ksm_files[i], values[i]);
	return ok;
}

static bool has_swap(void)
{
	FILE *f = fopen("/proc/swaps", "r");
	char line[256];
	int lines = 0;

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		lines++;
	fclose(f);
	return lines > 1;
}

/*
 * The row of lives.
 */

static pid_t start_life(u32 seconds)
{
	/* The second whole life, the sixth and so on, and the killed ones before them. */
	bool with_all = (run.nr_lives - run.nr_killed) % LIVES_WITH_ALL == 1;
	pid_t pid;

	/* The generator's first numbers are like its seed. */
	st.rng = new_kvm_random_state((run.seed + run.nr_lives * 2654435761u) % 0x7ffffffe + 1);
	kvm_random_u32(&st.rng);
	run.nr_lives++;

	fflush(NULL);
	pid = fork();
	TEST_ASSERT(pid >= 0, __KVM_SYSCALL_ERROR("fork()", pid));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		live(seconds, with_all);
		fflush(NULL);
		_exit(0);
	}
	return pid;
}

static void end_life(pid_t pid, bool killed)
{
	int status;

	TEST_ASSERT(waitpid(pid, &status, 0) == pid, __KVM_SYSCALL_ERROR("waitpid()", -1));
	if (killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : !status) {
		sample_memory();
		return;
	}
	printf("FAILED: life %u, after %lu KiB free, seed %u\n", run.nr_lives,
	       free_bytes() / 1024, run.seed);
	exit(1);
}

static void choose_log(void)
{
	do {
		st.log = (st.log + 1) % NR_LOGS;
	} while (st.log == LOG_RING && !run.has_ring);
}

static void whole_life(u32 seconds)
{
	choose_log();
	end_life(start_life(seconds), false);
}

static void killed_life(void)
{
	pid_t pid;

	choose_log();
	pid = start_life(0);
	usleep(1000 * (KILLED_MS / 4 + random_below(&kvm_rng, KILLED_MS)));
	kill(pid, SIGKILL);
	end_life(pid, true);
	run.nr_killed++;
}

static void live_for(u32 seconds)
{
	u32 part;

	for (; seconds; seconds -= part) {
		part = min_t(u32, seconds, LIFE_SECONDS);
		whole_life(part);
		if (disturber_is_on("kill"))
			killed_life();
	}
}

/*
 * The program.
 */

static void set_up(void)
{
	kvm_rng = new_kvm_random_state(run.seed % 0x7ffffffe + 1);
	st.page_size = getpagesize();
	st.window = kvm_check_cap(KVM_CAP_AUTO_PREFAULT);
	st.sum = kvm_mmap(sizeof(*st.sum), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1);
	run.has_ring = kvm_has_cap(KVM_CAP_DIRTY_LOG_RING) ||
		       kvm_has_cap(KVM_CAP_DIRTY_LOG_RING_ACQ_REL);
	run.has_swap = has_swap();
	run.has_tally = tally_begin();
	run.has_ksm = disturber_is_on("ksm") && start_ksm();
	run.tables = read_vmstat("nr_sec_page_table_pages");
}

static void tear_down(void)
{
	if (run.has_ksm)
		restore_ksm();
	if (run.has_tally)
		tally_end();
}

/* Faults that did nothing but make a page writable, and mark it dirty. */
static u64 write_faults(void)
{
	return st.sum->stats.pf_fast + st.sum->stats.write_faults;
}

static void print_sum(const struct tally t[])
{
	const struct stress_counters *s = st.sum;
	struct disturber *d;

	printf("lives %u killed %u written %lu checked %lu\n", run.nr_lives, run.nr_killed,
	       s->written, s->checked);
	printf("windows %lu mapped %lu raced %lu backoff %lu stale %lu\n", s->stats.windows,
	       s->stats.mapped, s->stats.raced, s->stats.backoff, t[TALLY_ALL].stale);
	printf("logged: mapped %lu write faults %lu reported %lu by get %lu ring %lu clear %lu\n",
	       t[TALLY_LOGGED].pages, write_faults(), s->reported, s->collected[LOG_GET],
	       s->collected[LOG_RING], s->collected[LOG_CLEAR]);
	printf("tables emptied %lu refilled %lu, merged %lu, swapped %lu, migrated %lu\n",
	       s->emptied, s->refilled, s->merged, s->swapped,
	       t[TALLY_MIGRATED].pages);
	printf("exits: kicked %lu faulted %lu mmio %lu, pre-faulted %lu\nsteps:", s->kicked,
	       s->faulted, s->mmio, s->pre_faulted);
	for (d = disturbers; d->name; d++)
		if (d->step)
			printf(" %s %lu", d->name, s->steps[d - disturbers]);
	puts("");
}

#define EXPECT(counter, on, what)	\
	TEST_ASSERT(!(on) || (counter), "A run of no use: %s", what)

static void expect_exercised(const struct tally t[])
{
	const struct stress_counters *s = st.sum;
	bool dirty = disturber_is_on("dirty");
	struct disturber *d;

	for (d = disturbers; d->name; d++)
		TEST_ASSERT(!d->on || !d->step || s->steps[d - disturbers],
			    "A run of no use: '%s' has done nothing", d->name);
	EXPECT(s->stats.windows && s->stats.mapped, true, "there was no window");
	EXPECT(s->written && s->checked, true, "the guest has not written, or not checked");
	EXPECT(s->pre_faulted, kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY),
	       "no vCPU has called KVM_PRE_FAULT_MEMORY");
	EXPECT(s->stats.raced, disturber_is_on("hot"), "no race was lost");
	EXPECT(t[TALLY_ALL].stale, disturber_is_on("hot") && run.has_tally, "no batch was stale");
	/*
	 * Nothing tells userspace of hints.  But a zap of all of a table sets one,
	 * the second zap, while no page can come back, passes it, and a guest that
	 * refills the table clears it.
	 */
	EXPECT(s->emptied && s->refilled, disturber_is_on("table"),
	       "no table was emptied, or none was used again");
	EXPECT(s->mmio, disturber_is_on("slot"), "no vCPU has missed a memslot");
	EXPECT(s->kicked, disturber_is_on("signal"), "no vCPU was interrupted");
	EXPECT(s->faulted, disturber_is_on("mprotect"), "no vCPU has met a protection");
	EXPECT(s->merged, run.has_ksm, "KSM has merged nothing");
	EXPECT(s->swapped, disturber_is_on("pageout") && run.has_swap,
	       "nothing was swapped out");
	EXPECT(t[TALLY_MIGRATED].pages, disturber_is_on("migrate") && run.has_tally,
	       "no page was migrated");
	EXPECT(run.nr_killed, disturber_is_on("kill"), "no VM was killed");
	/* Pages that were mapped in the log's memslot, and others that were written. */
	EXPECT(t[TALLY_LOGGED].pages, dirty && run.has_tally, "no logged page was prefaulted");
	EXPECT(write_faults(), dirty, "no write-protected page was written");
	EXPECT(s->reported, dirty, "no page was reported dirty");
	EXPECT(s->collected[LOG_GET], s->logging_lives[LOG_GET], "no log was read");
	EXPECT(s->collected[LOG_RING], s->logging_lives[LOG_RING], "no ring was read");
	EXPECT(s->collected[LOG_CLEAR], s->logging_lives[LOG_CLEAR],
	       "no log was cleared");
}

static void choose(char *list)
{
	struct disturber *d;
	bool known;
	char *name;

	for (name = strtok(list, ","); name; name = strtok(NULL, ",")) {
		known = false;
		for (d = disturbers; d->name; d++) {
			if (strcmp(name, d->name) && strcmp(name, "all"))
				continue;
			d->on = true;
			known = true;
		}
		if (!known) {
			fprintf(stderr, "-d: there is no '%s'\n", name);
			exit(1);
		}
	}
}

static void help(const char *name)
{
	struct disturber *d;

	printf("usage: %s [-s seed] [-t seconds] [-v vCPUs] [-d names]\ndisturbers: all", name);
	for (d = disturbers; d->name; d++)
		printf(",%s", d->name);
	puts("");
	exit(0);
}

int main(int argc, char *argv[])
{
	char all_names[] = "all", *list = all_names;
	struct tally t[TALLY_MIGRATED + 1];
	int opt, i;

	run.seed = kvm_random_seed;
	run.seconds = 20;
	st.nr_vcpus = 2;
	while ((opt = getopt(argc, argv, "s:t:v:d:h")) != -1) {
		switch (opt) {
		case 's':
			run.seed = prefault_parse_number("-s", optarg, 0, UINT_MAX);
			break;
		case 't':
			run.seconds = prefault_parse_number("-t", optarg, 1, 1000000);
			break;
		case 'v':
			st.nr_vcpus = prefault_parse_number("-v", optarg, 1, MAX_VCPUS);
			break;
		case 'd':
			list = optarg;
			break;
		default:
			help(argv[0]);
		}
	}
	printf("seed %u, %u s, %u vCPUs, disturbers: %s\n", run.seed, run.seconds,
	       st.nr_vcpus, list);
	choose(list);
	pvm_require();
	set_up();

	live_for(run.seconds);

	for (i = 0; i < ARRAY_SIZE(t); i++)
		t[i] = tally_read(i);
	tear_down();
	print_sum(t);
	expect_balance();
	expect_exercised(t);
	return 0;
}
