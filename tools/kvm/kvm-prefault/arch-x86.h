/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Port to x86_64: registers, and the code that is put into the target.
 */
#ifndef KVM_PREFAULT_ARCH_H
#define KVM_PREFAULT_ARCH_H

#include <errno.h>
#include <string.h>
#include <sys/user.h>
#include <linux/audit.h>

#define AUDIT_ARCH_NATIVE	AUDIT_ARCH_X86_64

/* The kernel's own error codes, which a tracer sees. */
#define ERESTARTSYS		512
#define ERESTARTNOINTR		513
#define ERESTARTNOHAND		514
#define ERESTART_RESTARTBLOCK	516

#define NR_CLOSE		3
#define NR_RESTART_SYSCALL	219

#define USER_CS			0x33

struct arch_regs {
	struct user_regs_struct r;
};

static inline uintptr_t arch_pc(const struct arch_regs *regs)
{
	return regs->r.rip;
}

static inline uintptr_t arch_sp(const struct arch_regs *regs)
{
	return regs->r.rsp;
}

/*
 * An orig_rax that is no call keeps the kernel from restarting anything: what
 * there is to restart is part of the registers that the stub restores.
 */
static inline void arch_set_call(struct arch_regs *regs, uintptr_t pc, long nr,
				 long a0, long a1, long a2)
{
	regs->r.rip = pc;
	regs->r.rax = nr;
	regs->r.orig_rax = -1;
	regs->r.rdi = a0;
	regs->r.rsi = a1;
	regs->r.rdx = a2;
}

#define INSN_SIZE		2

/*
 * Makes of the registers at a stop those to continue with.  The kernel rewinds
 * after the stop, so do here what it would have done.
 */
static inline enum resume arch_resume(struct arch_regs *regs,
				      const unsigned char *code, bool event)
{
	static const unsigned char insn[INSN_SIZE] = { 0x0f, 0x05 };
	enum resume resume = RESUME_RESTART;
	long nr = regs->r.orig_rax;

	if (regs->r.cs != USER_CS || nr < 0 ||
	    memcmp(code - INSN_SIZE, insn, INSN_SIZE))
		return RESUME_NOT_HERE;

	regs->r.orig_rax = -1;
	switch (-(long)regs->r.rax) {
	case ERESTART_RESTARTBLOCK:
		nr = NR_RESTART_SYSCALL;
		break;
	case ERESTARTNOHAND:
		resume = RESUME_UNLESS_SIGNAL;
		break;
	case ERESTARTSYS:
	case ERESTARTNOINTR:
		break;
	default:
		return RESUME_RETURN;
	}

	/* Not decided yet at the end of the call itself. */
	if (!event)
		return RESUME_NOT_HERE;
	regs->r.rax = nr;
	regs->r.rip -= INSN_SIZE;

	return resume;
}

/* From registers that restart a call to such that let it fail. */
static inline void arch_return_eintr(struct arch_regs *regs)
{
	regs->r.rax = -EINTR;
	regs->r.rip += INSN_SIZE;
}

/* Any distance will do, so there is no hop. */
#define ARCH_NEEDS_HOP	0

static inline bool arch_reaches(uintptr_t from, uintptr_t to)
{
	return true;
}

static inline void arch_hop(unsigned char *hop, uintptr_t addr,
			    const struct arch_regs *resume)
{
}

/*
 *	call:		syscall
 *			jmp	restore
 *	call_fd:	syscall
 *			mov	%rax, %rdi
 *			mov	$NR_CLOSE, %eax
 *			syscall
 *	restore:	mov	data(%rip), %rax	and rcx, rdx, rsi, rdi, r11
 *			jmp	*data(%rip)
 *	data:		six registers and the address
 *
 * The other registers, the flags and the stack are not touched.
 */
#define STUB_CALL	0
#define STUB_CALL_FD	4
#define STUB_RESTORE	16
#define STUB_DATA	64
#define STUB_SIZE	(STUB_DATA + 7 * 8)

static inline void arch_stub(unsigned char *stub, uintptr_t addr, uintptr_t hop,
			     const struct arch_regs *resume)
{
	static const unsigned char head[STUB_RESTORE] = {
		0x0f, 0x05, 0xeb, STUB_RESTORE - 4,
		0x0f, 0x05, 0x48, 0x89, 0xc7, 0xb8, NR_CLOSE, 0, 0, 0, 0x0f, 0x05,
	};
	static const unsigned char loads[][3] = {
		{ 0x48, 0x8b, 0x05 }, { 0x48, 0x8b, 0x0d }, { 0x48, 0x8b, 0x15 },
		{ 0x48, 0x8b, 0x35 }, { 0x48, 0x8b, 0x3d }, { 0x4c, 0x8b, 0x1d },
	};
	const uint64_t data[] = {
		resume->r.rax, resume->r.rcx, resume->r.rdx, resume->r.rsi,
		resume->r.rdi, resume->r.r11, resume->r.rip,
	};
	unsigned int i, at = STUB_RESTORE;
	int32_t distance;

	memcpy(stub, head, sizeof(head));
	for (i = 0; i < 6; i++) {
		distance = STUB_DATA + i * 8 - (at + 7);
		memcpy(stub + at, loads[i], 3);
		memcpy(stub + at + 3, &distance, 4);
		at += 7;
	}
	distance = STUB_DATA + i * 8 - (at + 6);
	stub[at] = 0xff;
	stub[at + 1] = 0x25;
	memcpy(stub + at + 2, &distance, 4);
	memcpy(stub + STUB_DATA, data, sizeof(data));
}

#endif
