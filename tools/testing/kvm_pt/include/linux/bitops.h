/* SPDX-License-Identifier: GPL-2.0 */
#include <linux/kvm_pt_shim.h>
