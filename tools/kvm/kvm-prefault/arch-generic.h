/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What arm64 and riscv have in common: the kernel decides about a restart
 * before the stop, so that the program counter is at the system call
 * instruction already.  What cannot be seen is whether it would turn the call
 * into restart_syscall() afterwards: that follows from the call.
 *
 * A port has defined, before it includes this file, struct arch_regs with the
 * registers in r, CALL_NR() and CALL_ARG() of them, INSN_CALL (the system call
 * instruction), and BRANCH_REACH and BRANCH_MARGIN in bytes.
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

static inline uintptr_t arch_pc(const struct arch_regs *regs)
{
	return regs->r.pc;
}

static inline uintptr_t arch_sp(const struct arch_regs *regs)
{
	return regs->r.sp;
}

static inline void arch_set_call(struct arch_regs *regs, uintptr_t pc, long nr,
				 long a0, long a1, long a2)
{
	regs->r.pc = pc;
	CALL_NR(regs) = nr;
	CALL_ARG(regs, 0) = a0;
	CALL_ARG(regs, 1) = a1;
	CALL_ARG(regs, 2) = a2;
}

/* Makes of the registers at a stop those to continue with. */
static inline enum resume arch_resume(struct arch_regs *regs,
				      const unsigned char *code, bool event)
{
	const unsigned long args[4] = {
		CALL_ARG(regs, 0), CALL_ARG(regs, 1), CALL_ARG(regs, 2), CALL_ARG(regs, 3),
	};
	long nr = CALL_NR(regs), error = -(long)CALL_ARG(regs, 0);

	if (event && is_insn(code, INSN_CALL)) {
		if (restarts_by_block(nr, args)) {
			CALL_NR(regs) = NR_RESTART_SYSCALL;
			return RESUME_RESTART;
		}
		return ends_by_handler(nr) ? RESUME_UNLESS_SIGNAL :
					     RESUME_RESTART;
	}

	/* The end of a call that the kernel is about to restart: too early. */
	if (!is_insn(code - INSN_SIZE, INSN_CALL) ||
	    (error >= ERESTARTSYS && error <= ERESTART_RESTARTBLOCK))
		return RESUME_NOT_HERE;

	return RESUME_RETURN;
}

/* From registers that restart a call to such that let it fail. */
static inline void arch_return_eintr(struct arch_regs *regs)
{
	CALL_ARG(regs, 0) = -EINTR;
	regs->r.pc += INSN_SIZE;
}

/* There is no branch without a register but a direct one. */
static inline bool arch_reaches(uintptr_t from, uintptr_t to)
{
	long distance = to - from;

	return distance > -BRANCH_REACH + BRANCH_MARGIN &&
	       distance < BRANCH_REACH - BRANCH_MARGIN;
}

#endif
