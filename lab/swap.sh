#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Inside the machine: swap.sh COMMAND...: runs COMMAND with the ram disks as swap.
# Their pages are allocated beforehand, so that swap takes no more memory later.

for disk in /dev/ram*; do
	dd if=/dev/zero of="$disk" bs=64k > /dev/null 2>&1
	mkswap "$disk" > /dev/null && swapon "$disk"
done
"$@"
status=$?
sed -n "s,^\(/dev/ram[0-9]*\) .*,\1,p" /proc/swaps | xargs -r swapoff
exit $status
