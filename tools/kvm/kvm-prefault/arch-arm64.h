/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Port to arm64: registers, and the code that is put into the target.
 */
#ifndef KVM_PREFAULT_ARCH_H
#define KVM_PREFAULT_ARCH_H

#include <asm/ptrace.h>

#define AUDIT_ARCH_NATIVE	AUDIT_ARCH_AARCH64

#define INSN_CALL		0xd4000001

struct arch_regs {
	struct user_pt_regs r;
};

#define CALL_NR(state)		((state)->r.regs[8])
#define CALL_ARG(state, n)	((state)->r.regs[n])

#define BRANCH_REACH		(128L << 20)
#define BRANCH_MARGIN		4096

#include "arch-generic.h"

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
		INSN_CALL, insn_b(STUB_RESTORE - 4),
		INSN_CALL, 0xd2800008 | (NR_CLOSE << 5), INSN_CALL,
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
