/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What arm64 and riscv have in common: the kernel decides about a restart
 * before the stop, so that the program counter is at the system call
 * instruction already.  What cannot be seen is whether it would turn the call
 * into restart_syscall() afterwards: that follows from the call.
 */
#ifndef KVM_PREFAULT_ARCH_GENERIC_H
#define KVM_PREFAULT_ARCH_GENERIC_H

#include <errno.h>
#include <string.h>
#include <time.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#define INSN_SIZE	4

#define NR_CLOSE		__NR_close
#define NR_RESTART_SYSCALL	__NR_restart_syscall

#define ERESTARTSYS		512
#define ERESTART_RESTARTBLOCK	516

static inline bool restarts_by_block(long nr, const unsigned long args[4])
{
	switch (nr) {
	case __NR_nanosleep:
		return true;
	case __NR_clock_nanosleep:
		return !(args[1] & TIMER_ABSTIME);
	case __NR_futex:
		return args[3] && ((args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT ||
				   (args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET);
	}

	return false;
}

/* Calls that a handler ends whatever its flags are. */
static inline bool ends_by_handler(long nr)
{
	return nr == __NR_ppoll || nr == __NR_pselect6 ||
	       nr == __NR_rt_sigsuspend || nr == __NR_clock_nanosleep;
}

static inline bool is_insn(const unsigned char *code, uint32_t insn)
{
	return !memcmp(code, &insn, INSN_SIZE);
}

#endif
