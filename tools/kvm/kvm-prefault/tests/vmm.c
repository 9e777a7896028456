// SPDX-License-Identifier: GPL-2.0
/*
 * A VMM that knows nothing about auto-prefault: first a scratch VM, then one
 * whose guest touches its memory page by page, 64 of them for each exit, with a
 * pause after it.  All of the memory is there from the start.  At the end of the
 * memory the memslot is made anew and the guest starts over.
 *
 * Prints "PID VM-FD" when the guest runs and "WINDOWS MAPPED", its own prefault
 * statistics, at the end.
 *
 *	--seconds N	ends by itself; otherwise by SIGTERM
 *	--runs N	ends by itself after as many exits
 *	--status N	exit status
 *	--drop		drops root's privileges behind open("/dev/kvm")
 *	--helper	executes another program first
 *	--fork		makes the VM in a child
 *	--exec		executes itself first
 *	--two		makes a second VM before the first one runs
 *	--seccomp	then forbids itself to enable capabilities; status 4 if
 *			there are no filters
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUEST_BASE	0x10000000UL
#define GUEST_SIZE	(32UL << 20)
/* Nothing is there: an access is an exit. */
#define GUEST_MMIO	0x08000000UL
#define PAGES_PER_RUN	64
#define NOBODY		65534

static int kvm, vm, vcpu;
static char *memory;
static size_t page;
static struct kvm_run *run;
static volatile sig_atomic_t stop;
static int runs;

static void check(const char *what, long r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "vmm: %s: %s\n", what, strerror(errno));
	exit(100);
}

#if defined(__x86_64__)
static const unsigned char guest_code[] = {
	0xfe, 0x06,				/* loop: incb (%esi) */
	0x81, 0xc6, 0x00, 0x10, 0x00, 0x00,	/* add $4096, %esi */
	0x49,					/* dec %ecx */
	0x75, 0xf5,				/* jnz loop */
	0xe6, 0x10,				/* out %al, $16 */
};

/* Protected mode, flat, no paging. */
static void init_vcpu(void)
{
	struct kvm_segment flat = { .limit = 0xffffffff, .selector = 8,
				    .type = 3, .present = 1, .db = 1, .s = 1,
				    .g = 1 };
	struct kvm_sregs sregs;

	check("KVM_GET_SREGS", ioctl(vcpu, KVM_GET_SREGS, &sregs));
	sregs.ds = flat;
	sregs.es = flat;
	sregs.ss = flat;
	flat.type = 11;
	sregs.cs = flat;
	sregs.cr0 |= 1;
	check("KVM_SET_SREGS", ioctl(vcpu, KVM_SET_SREGS, &sregs));
}

static void set_vcpu(uint64_t addr)
{
	struct kvm_regs regs = { .rip = GUEST_BASE, .rsi = addr,
				 .rcx = PAGES_PER_RUN, .rflags = 2 };

	check("KVM_SET_REGS", ioctl(vcpu, KVM_SET_REGS, &regs));
}

#define EXIT_REASON	KVM_EXIT_IO
#else
static void set_reg(uint64_t id, uint64_t value)
{
	struct kvm_one_reg reg = { .id = id, .addr = (uintptr_t)&value };

	check("KVM_SET_ONE_REG", ioctl(vcpu, KVM_SET_ONE_REG, &reg));
}

#define EXIT_REASON	KVM_EXIT_MMIO

/* The next KVM_RUN completes the access, and skips an instruction. */
#if defined(__aarch64__)
static const uint32_t guest_code[] = {
	0xd503201f,	/* nop */
	0x39000002,	/* loop: strb w2, [x0] */
	0x91400400,	/* add x0, x0, #4096 */
	0xf1000421,	/* subs x1, x1, #1 */
	0x54ffffa1,	/* b.ne loop */
	0xb9000062,	/* str w2, [x3] */
};

static void init_vcpu(void)
{
	struct kvm_vcpu_init init;

	check("KVM_ARM_PREFERRED_TARGET",
	      ioctl(vm, KVM_ARM_PREFERRED_TARGET, &init));
	check("KVM_ARM_VCPU_INIT", ioctl(vcpu, KVM_ARM_VCPU_INIT, &init));
}

#define REG(field)	(KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE | \
			 offsetof(struct kvm_regs, regs.field) / 4)

static void set_vcpu(uint64_t addr)
{
	set_reg(REG(pc), GUEST_BASE);
	set_reg(REG(regs[0]), addr);
	set_reg(REG(regs[1]), PAGES_PER_RUN);
	set_reg(REG(regs[3]), GUEST_MMIO);
}
#else
static const uint32_t guest_code[] = {
	0x00000013,	/* nop */
	0x00c50023,	/* loop: sb a2, 0(a0) */
	0x00d50533,	/* add a0, a0, a3 */
	0xfff58593,	/* addi a1, a1, -1 */
	0xfe059ae3,	/* bnez a1, loop */
	0x00c72023,	/* sw a2, 0(a4) */
};

static void init_vcpu(void)
{
}

#define REG(field)	(KVM_REG_RISCV | KVM_REG_SIZE_U64 | KVM_REG_RISCV_CORE | \
			 KVM_REG_RISCV_CORE_REG(field))

static void set_vcpu(uint64_t addr)
{
	set_reg(REG(regs.pc), GUEST_BASE);
	set_reg(REG(regs.a0), addr);
	set_reg(REG(regs.a1), PAGES_PER_RUN);
	set_reg(REG(regs.a3), 4096);
	set_reg(REG(regs.a4), GUEST_MMIO);
}
#endif
#endif

static void set_memory(size_t size)
{
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = GUEST_BASE,
		.memory_size = size,
		.userspace_addr = (uintptr_t)memory,
	};

	check("KVM_SET_USER_MEMORY_REGION",
	      ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region));
}

/* Like other VMMs: the kernel needs to lock all mappings, and may be disturbed. */
static int create_vm(void)
{
	int fd;

	do {
		fd = ioctl(kvm, KVM_CREATE_VM, 0);
	} while (fd < 0 && errno == EINTR);
	check("KVM_CREATE_VM", fd);

	return fd;
}

static void scratch_vm(void)
{
	int scratch_vcpu, scratch = create_vm();

	scratch_vcpu = ioctl(scratch, KVM_CREATE_VCPU, 0);
	check("KVM_CREATE_VCPU", scratch_vcpu);
	close(scratch_vcpu);
	close(scratch);
}

static void make_vm(bool drop)
{
	int size;

	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	check("/dev/kvm", kvm);
	if (drop) {
		check("setgid", setgid(NOBODY));
		check("setuid", setuid(NOBODY));
	}
	scratch_vm();
	vm = create_vm();

	memory = mmap(NULL, GUEST_SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		check("mmap", -1);
	/* Small pages: there has to be something to prefault. */
	madvise(memory, GUEST_SIZE, MADV_NOHUGEPAGE);
	memset(memory, 1, GUEST_SIZE);
	memcpy(memory, guest_code, sizeof(guest_code));
	set_memory(GUEST_SIZE);

	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	check("KVM_CREATE_VCPU", vcpu);
	size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	check("KVM_GET_VCPU_MMAP_SIZE", size);
	run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (run == MAP_FAILED)
		check("mmap of the vCPU", -1);
	init_vcpu();
}

static void *run_vcpu(void *arg)
{
	uint64_t offset = page;

	while (!stop) {
		set_vcpu(GUEST_BASE + offset);
		while (ioctl(vcpu, KVM_RUN, 0)) {
			if (errno != EINTR)
				check("KVM_RUN", -1);
		}
		if (run->exit_reason != EXIT_REASON) {
			fprintf(stderr, "vmm: exit reason %u\n", run->exit_reason);
			exit(101);
		}
		offset += PAGES_PER_RUN * 4096;
		if (offset + PAGES_PER_RUN * 4096 > GUEST_SIZE) {
			set_memory(0);
			set_memory(GUEST_SIZE);
			offset = page;
		}
		if (runs && !--runs)
			kill(getpid(), SIGTERM);
		usleep(2000);
	}

	return NULL;
}

static uint64_t read_stat(int fd, const char *name)
{
	struct kvm_stats_header h;
	struct kvm_stats_desc *d;
	uint64_t value = 0;
	size_t size;
	unsigned int i;

	if (pread(fd, &h, sizeof(h), 0) != sizeof(h))
		return 0;
	size = sizeof(*d) + h.name_size;
	d = malloc(size);
	for (i = 0; i < h.num_desc; i++) {
		if (pread(fd, d, size, h.desc_offset + i * size) ==
		    (ssize_t)size && !strcmp(d->name, name) &&
		    pread(fd, &value, 8, h.data_offset + d->offset) == 8)
			break;
	}
	free(d);

	return value;
}

static void print_stats(void)
{
	int fd = ioctl(vcpu, KVM_GET_STATS_FD, NULL);

	printf("%llu %llu\n",
	       (unsigned long long)read_stat(fd, "prefault_windows"),
	       (unsigned long long)read_stat(fd, "prefault_mapped"));
}

static void on_signal(int sig)
{
	stop = 1;
}

static void execute(char *const argv[])
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		execv(argv[0], argv);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	if (status)
		check("the helper", -1);
}

static bool has_option(int argc, char **argv, const char *name)
{
	while (--argc) {
		if (!strcmp(argv[argc], name))
			return true;
	}

	return false;
}

static int number_option(int argc, char **argv, const char *name)
{
	while (--argc > 1) {
		if (!strcmp(argv[argc - 1], name))
			return atoi(argv[argc]);
	}

	return 0;
}

static void start(int argc, char **argv)
{
	char *const helper[] = { argv[0], "--nothing", NULL };
	unsigned int i;
	int status;
	pid_t pid;

	if (has_option(argc, argv, "--exec")) {
		for (i = 1; argv[i]; i++) {
			if (!strcmp(argv[i], "--exec"))
				argv[i] = "--execed";
		}
		execv(argv[0], argv);
		check("exec", -1);
	}
	if (has_option(argc, argv, "--helper"))
		execute(helper);
	if (has_option(argc, argv, "--fork")) {
		pid = fork();
		check("fork", pid);
		if (pid) {
			waitpid(pid, &status, 0);
			exit(WIFEXITED(status) ? WEXITSTATUS(status) : 102);
		}
	}
}

static void forbid(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, KVM_ENABLE_CAP, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, KVM_GET_STATS_FD, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		exit(4);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	pthread_t thread;
	sigset_t set, old;

	if (has_option(argc, argv, "--nothing"))
		return 0;
	page = sysconf(_SC_PAGESIZE);
	start(argc, argv);

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, &old);

	make_vm(has_option(argc, argv, "--drop"));
	if (has_option(argc, argv, "--two"))
		create_vm();
	if (has_option(argc, argv, "--seccomp"))
		forbid();
	runs = number_option(argc, argv, "--runs");
	if (pthread_create(&thread, NULL, run_vcpu, NULL))
		check("thread", -1);
	printf("%d %d\n", getpid(), vm);
	fflush(stdout);
	alarm(number_option(argc, argv, "--seconds"));
	while (!stop)
		sigsuspend(&old);
	pthread_join(thread, NULL);
	if (!has_option(argc, argv, "--seccomp"))
		print_stats();

	return number_option(argc, argv, "--status");
}
