# SPDX-License-Identifier: GPL-2.0
# Inside the machine: runs tests one by one and frames each one's output with
# marker lines that lab/check reads:
#
#   @@ begin INDEX
#   ...
#   @@ end INDEX STATUS SECONDS MAPPED WARNINGS
#
# MAPPED is the number of pages that auto-prefault mapped meanwhile, "-" on a
# kernel without it. It is counted by the tracepoint: the statistics of a VM
# vanish with the VM.

event=/sys/kernel/tracing/events/kvm/kvm_prefault
count='hist:keys=vcpu_id:vals=mapped'
# What no kernel message may be. lab/run reads these two lines, too.
bad='WARNING:|BUG:|Oops|INFO: (task|rcu|possible|trying)|suspicious RCU|UBSAN:|unreferenced object'
# Of the data races that KCSAN reports those count in which one of these is involved.
ours='prefault|kvm_pt_|_live|tdp_mmu_zap_leaf|empty_hint|try_map_page|gstage_'

now() {
	cut -d' ' -f1 /proc/uptime
}

# one INDEX TIMEOUT COMMAND
one() {
	echo "@@ begin $1"
	dmesg -c > /dev/null
	[ ! -e $event ] || echo "$count" > $event/trigger
	rm -f /tmp/late
	start=$(now)
	setsid sh -c "$3" 2>&1 &
	test=$!
	{ sleep "$2"; touch /tmp/late; kill -KILL -$test; } > /dev/null 2>&1 &
	watch=$!
	wait $test
	status=$?
	kill $watch 2> /dev/null
	kill -KILL -$test 2> /dev/null
	[ ! -e /tmp/late ] || status=124
	end=$(now)
	mapped=-
	if [ -e $event ]; then
		mapped=$(awk '{ for (i = 1; i < NF; i++) if ($i == "mapped:") n += $(i + 1) }
			END { print n + 0 }' $event/hist)
		echo "!$count" > $event/trigger
	fi
	dmesg | awk -v ours="$ours" '/BUG: KCSAN: / && $0 !~ ours { sub(/BUG:/, "") } 1' > /tmp/dmesg
	warnings=$(grep -cE "$bad" /tmp/dmesg)
	echo
	grep -E -m 2 -A 25 "$bad" /tmp/dmesg
	echo "@@ end $1 $status $(echo "$end $start" | awk '{ printf "%.1f", $1 - $2 }') $mapped $warnings"
}
