/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Port to arm64: registers, and the code that is put into the target.
 */
#ifndef KVM_PREFAULT_ARCH_H
#define KVM_PREFAULT_ARCH_H

#include <asm/ptrace.h>
#include "arch-generic.h"

#define AUDIT_ARCH_NATIVE	AUDIT_ARCH_AARCH64

#define INSN_SVC		0xd4000001

struct arch_regs {
	struct user_pt_regs r;
};

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
	regs->r.regs[8] = nr;
	regs->r.regs[0] = a0;
	regs->r.regs[1] = a1;
	regs->r.regs[2] = a2;
}

/* Makes of the registers at a stop those to continue with. */
static inline enum resume arch_resume(struct arch_regs *regs,
				      const unsigned char *code, bool event)
{
	const unsigned long args[4] = {
		regs->r.regs[0], regs->r.regs[1], regs->r.regs[2], regs->r.regs[3],
	};
	long nr = regs->r.regs[8], error = -(long)regs->r.regs[0];

	if (event && is_insn(code, INSN_SVC)) {
		if (restarts_by_block(nr, args)) {
			regs->r.regs[8] = NR_RESTART_SYSCALL;
			return RESUME_RESTART;
		}
		return ends_by_handler(nr) ? RESUME_UNLESS_SIGNAL :
					     RESUME_RESTART;
	}

	/* The end of a call that the kernel is about to restart: too early. */
	if (!is_insn(code - INSN_SIZE, INSN_SVC) ||
	    (error >= ERESTARTSYS && error <= ERESTART_RESTARTBLOCK))
		return RESUME_NOT_HERE;

	return RESUME_RETURN;
}

/* From registers that restart a call to such that let it fail. */
static inline void arch_return_eintr(struct arch_regs *regs)
{
	regs->r.regs[0] = -EINTR;
	regs->r.pc += INSN_SIZE;
}

#define BRANCH_REACH	(128L << 20)

/* There is no branch without a register but a direct one. */
static inline bool arch_reaches(uintptr_t from, uintptr_t to)
{
	long distance = to - from;

	return distance > -BRANCH_REACH + 4096 && distance < BRANCH_REACH - 4096;
}

/*
 *	call:		svc	#0
 *			b	restore
 *	call_fd:	svc	#0
 *			mov	x8, #NR_CLOSE
 *			svc	#0
 *	restore:	ldr	x0, data		and x1, x2, x8
 *			b	pc			or ldr x16, data
 *							   br x16
 *	data:		four registers and the hop's address
 *
 * A system call changes nothing but x0 (and what SVE has beyond the vector
 * registers, which is why the stub starts where a call has just ended).
 */
#define STUB_CALL	0
#define STUB_CALL_FD	8
#define STUB_RESTORE	20
#define STUB_BRANCH	(STUB_RESTORE + 4 * INSN_SIZE)
#define STUB_DATA	48
#define STUB_SIZE	(STUB_DATA + 5 * 8)

/*
 * Where a stub too far away ends, within reach of the thread's way:
 *
 *	bti	jc
 *	ldr	x16, data
 *	b	pc
 */
#define ARCH_NEEDS_HOP	1
#define HOP_DATA	16

static inline uint32_t insn_b(long distance)
{
	return 0x14000000 | ((distance >> 2) & 0x3ffffff);
}

static inline uint32_t insn_ldr(unsigned int reg, long distance)
{
	return 0x58000000 | reg | distance / 4 << 5;
}

static inline void arch_hop(unsigned char *hop, uintptr_t addr,
			    const struct arch_regs *resume)
{
	const uint32_t code[] = {
		0xd50324df, insn_ldr(16, HOP_DATA - 4),
		insn_b(resume->r.pc - (addr + 8)), 0,
	};
	const uint64_t data = resume->r.regs[16];

	memcpy(hop, code, sizeof(code));
	memcpy(hop + HOP_DATA, &data, sizeof(data));
}

static inline void arch_stub(unsigned char *stub, uintptr_t addr, uintptr_t hop,
			     const struct arch_regs *resume)
{
	static const unsigned int regs[] = { 0, 1, 2, 8 };
	uint32_t code[STUB_DATA / INSN_SIZE] = {
		INSN_SVC, insn_b(STUB_RESTORE - 4),
		INSN_SVC, 0xd2800008 | (NR_CLOSE << 5), INSN_SVC,
	};
	uint64_t data[ARRAY_SIZE(regs) + 1];
	unsigned int i, at = STUB_RESTORE;

	for (i = 0; i < ARRAY_SIZE(regs); i++, at += INSN_SIZE) {
		code[at / INSN_SIZE] = insn_ldr(regs[i], STUB_DATA + i * 8 - at);
		data[i] = resume->r.regs[regs[i]];
	}
	data[i] = hop;
	if (hop) {
		code[at / INSN_SIZE] = insn_ldr(16, STUB_DATA + i * 8 - at);
		code[at / INSN_SIZE + 1] = 0xd61f0200;
	} else {
		code[at / INSN_SIZE] = insn_b(resume->r.pc - (addr + at));
	}

	memcpy(stub, code, sizeof(code));
	memcpy(stub + STUB_DATA, data, sizeof(data));
}

#endif
