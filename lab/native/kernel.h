/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The little of the kernel that include/linux/kvm_prefault_policy.h uses, for
 * native programs. The headers in linux/ all end up here.
 */
#ifndef NATIVE_KERNEL_H
#define NATIVE_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define BIT_ULL(n)		(1ULL << (n))
#define GENMASK_ULL(h, l)	((~0ULL << (l)) & (~0ULL >> (63 - (h))))

#define likely(x)		__builtin_expect(!!(x), 1)

#define min(a, b) ({ __auto_type _a = (a); __auto_type _b = (b); _a < _b ? _a : _b; })
#define max(a, b) ({ __auto_type _a = (a); __auto_type _b = (b); _a > _b ? _a : _b; })
#define clamp(v, lo, hi)	min(max(v, lo), hi)

static inline int fls64(u64 x)
{
	return x ? 64 - __builtin_clzll(x) : 0;
}

#endif /* NATIVE_KERNEL_H */
