/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Port to riscv64: registers, and the code that is put into the target.
 */
#ifndef KVM_PREFAULT_ARCH_H
#define KVM_PREFAULT_ARCH_H

#include <asm/ptrace.h>
#include "arch-generic.h"

#define AUDIT_ARCH_NATIVE	AUDIT_ARCH_RISCV64

#define INSN_ECALL		0x00000073

struct arch_regs {
	struct user_regs_struct r;
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
	regs->r.a7 = nr;
	regs->r.a0 = a0;
	regs->r.a1 = a1;
	regs->r.a2 = a2;
}

/* Makes of the registers at a stop those to continue with. */
static inline enum resume arch_resume(struct arch_regs *regs,
				      const unsigned char *code, bool event)
{
	const unsigned long args[4] = {
		regs->r.a0, regs->r.a1, regs->r.a2, regs->r.a3,
	};
	long nr = regs->r.a7, error = -(long)regs->r.a0;

	if (event && is_insn(code, INSN_ECALL)) {
		if (restarts_by_block(nr, args)) {
			regs->r.a7 = NR_RESTART_SYSCALL;
			return RESUME_RESTART;
		}
		return ends_by_handler(nr) ? RESUME_UNLESS_SIGNAL :
					     RESUME_RESTART;
	}

	/* The end of a call that the kernel is about to restart: too early. */
	if (!is_insn(code - INSN_SIZE, INSN_ECALL) ||
	    (error >= ERESTARTSYS && error <= ERESTART_RESTARTBLOCK))
		return RESUME_NOT_HERE;

	return RESUME_RETURN;
}

/* From registers that restart a call to such that let it fail. */
static inline void arch_return_eintr(struct arch_regs *regs)
{
	regs->r.a0 = -EINTR;
	regs->r.pc += INSN_SIZE;
}

#define JAL_REACH	(1L << 20)

/* There is no jump without a register but a direct one, and it is short. */
static inline bool arch_reaches(uintptr_t from, uintptr_t to)
{
	long distance = to - from;

	return distance > -JAL_REACH + 1024 && distance < JAL_REACH - 1024;
}

/*
 *	call:		ecall
 *			j	restore
 *	call_fd:	ecall
 *			li	a7, NR_CLOSE
 *			ecall
 *	restore:	auipc	a0, 0			and a1, a2, a7
 *			ld	a0, data(a0)
 *			j	pc			or auipc t2, 0
 *							   ld t2, data(t2)
 *							   jr t2
 *	data:		four registers and the hop's address
 *
 * A system call changes nothing but a0 (and the vector registers, which is why
 * the stub starts where a call has just ended).
 */
#define STUB_CALL	0
#define STUB_CALL_FD	8
#define STUB_RESTORE	20
#define STUB_JUMP	(STUB_RESTORE + 8 * INSN_SIZE)
#define STUB_DATA	64
#define STUB_SIZE	(STUB_DATA + 5 * 8)

/*
 * Where a stub too far away ends, within reach of the thread's way:
 *
 *	auipc	t2, 0
 *	ld	t2, data(t2)
 *	j	pc
 *
 * A jump through t2 needs no landing pad.
 */
#define ARCH_NEEDS_HOP	1
#define HOP_DATA	16

static inline uint32_t insn_j(long distance)
{
	uint32_t d = distance;

	return 0x6f | (d & 0xff000) | (d & 0x800) << 9 | (d & 0x7fe) << 20 |
	       (d & 0x100000) << 11;
}

/* Loads a register from @distance behind the first of two instructions. */
static inline void insns_load(uint32_t *code, unsigned int reg, long distance)
{
	code[0] = 0x17 | reg << 7;
	code[1] = 0x3003 | reg << 7 | reg << 15 | distance << 20;
}

static inline void arch_hop(unsigned char *hop, uintptr_t addr,
			    const struct arch_regs *resume)
{
	const uint64_t data = resume->r.t2;
	uint32_t code[4] = {};

	insns_load(code, 7, HOP_DATA);
	code[2] = insn_j(resume->r.pc - (addr + 8));
	memcpy(hop, code, sizeof(code));
	memcpy(hop + HOP_DATA, &data, sizeof(data));
}

static inline void arch_stub(unsigned char *stub, uintptr_t addr, uintptr_t hop,
			     const struct arch_regs *resume)
{
	static const unsigned int regs[] = { 10, 11, 12, 17 };
	const uint64_t data[] = {
		resume->r.a0, resume->r.a1, resume->r.a2, resume->r.a7, hop,
	};
	uint32_t code[STUB_DATA / INSN_SIZE] = {
		INSN_ECALL, insn_j(STUB_RESTORE - 4),
		INSN_ECALL, 0x00000893 | NR_CLOSE << 20, INSN_ECALL,
	};
	unsigned int i, at = STUB_RESTORE;

	for (i = 0; i < ARRAY_SIZE(regs); i++, at += 2 * INSN_SIZE)
		insns_load(&code[at / INSN_SIZE], regs[i], STUB_DATA + i * 8 - at);
	if (hop) {
		insns_load(&code[at / INSN_SIZE], 7, STUB_DATA + i * 8 - at);
		code[at / INSN_SIZE + 2] = 0x00038067;
	} else {
		code[at / INSN_SIZE] = insn_j(resume->r.pc - (addr + at));
	}

	memcpy(stub, code, sizeof(code));
	memcpy(stub + STUB_DATA, data, sizeof(data));
}

#endif
