/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Port to riscv64: registers, and the code that is put into the target.
 */
#ifndef KVM_PREFAULT_ARCH_H
#define KVM_PREFAULT_ARCH_H

#include <asm/ptrace.h>

#define AUDIT_ARCH_NATIVE	AUDIT_ARCH_RISCV64

#define INSN_CALL		0x00000073

struct arch_regs {
	struct user_regs_struct r;
};

#define CALL_NR(state)		((state)->r.a7)
#define CALL_ARG(state, n)	((state)->r.a##n)

/* A jump with an offset is short. */
#define BRANCH_REACH		(1L << 20)
#define BRANCH_MARGIN		1024

#include "arch-generic.h"

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
		INSN_CALL, insn_j(STUB_RESTORE - 4),
		INSN_CALL, 0x00000893 | NR_CLOSE << 20, INSN_CALL,
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
