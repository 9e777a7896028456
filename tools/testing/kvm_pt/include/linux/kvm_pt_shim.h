/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What kvm_pt_iter.h, kvm_prefault_policy.h and their tests need of the kernel's
 * headers.
 */
#ifndef __KVM_PT_SHIM_H
#define __KVM_PT_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#undef __always_inline
#define __always_inline		inline __attribute__((__always_inline__))
#define READ_ONCE(x)		(*(const volatile __typeof__(x) *)&(x))
#define OPTIMIZER_HIDE_VAR(v)	__asm__ volatile("" : "+r" (v))
#define noinline		__attribute__((__noinline__))
#define __maybe_unused		__attribute__((__unused__))
#define BUILD_BUG_ON(x)		_Static_assert(!(x), #x)
#define BIT(n)			(1UL << (n))
#define BIT_ULL(n)		(1ULL << (n))
#define GENMASK(h, l)		((~0UL << (l)) & (~0UL >> (63 - (h))))
#define GENMASK_ULL(h, l)	((~0ULL << (l)) & (~0ULL >> (63 - (h))))
#define likely(x)		__builtin_expect(!!(x), 1)
#define min(a, b)		({ __auto_type _a = (a); __auto_type _b = (b); _a < _b ? _a : _b; })
#define max(a, b)		({ __auto_type _a = (a); __auto_type _b = (b); _a > _b ? _a : _b; })
#define clamp(v, lo, hi)	min(max(v, lo), hi)
#define ARRAY_SIZE(x)		(sizeof(x) / sizeof((x)[0]))

static inline int fls64(u64 x)
{
	return x ? 64 - __builtin_clzll(x) : 0;
}

/* Aligned as the kernel's are, and of exactly that size, for ASan to see. */
#define GFP_KERNEL		0
static inline void *kmalloc(size_t size, int gfp)
{
	size_t align = size & -size;
	void *p = NULL;

	return posix_memalign(&p, align < 64 ? 64 : align, size) ? NULL : p;
}

#define kvzalloc(size, gfp)	calloc(1, size)
#define kfree(p)		free(p)
#define kvfree(p)		free(p)

#endif
