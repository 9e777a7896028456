#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Tests of kvm-prefault on a host with the capability, as root.  Needs a shell
# and grep, sed and sleep.  Prints TAP; the programs are in this folder.

cd "$(dirname "$0")" || exit 1
param=/sys/module/kvm/parameters/auto_prefault_size
tmp=$(mktemp -d)
number=0 failed=0
vmm=

# ok NAME CONDITION...: one test.
ok() {
	name=$1
	shift
	number=$((number + 1))
	if "$@" > "$tmp/ok" 2>&1; then
		echo "ok $number - $name"
	else
		failed=$((failed + 1))
		echo "not ok $number - $name"
		sed 's/^/# /' "$tmp/ok" "$tmp/out" "$tmp/err" 2> /dev/null
	fi
}

# gives STATUS COMMAND...: keeps the output, and says no more than a line on
# stderr.
gives() {
	want=$1 status=0
	shift
	"$@" > "$tmp/out" 2> "$tmp/err" || status=$?
	echo "status $status, expected $want"
	[ $status = "$want" ] && [ "$(wc -l < "$tmp/err")" -le 1 ]
}

says() {
	grep -q -- "$1" "$tmp/out"
}

warns() {
	grep -q -- "$1" "$tmp/err"
}

# What the VMM's own statistics say.
mapped() {
	tail -n 1 "$tmp/out" | sed 's/.* //'
}

mapped_some() {
	echo "mapped: $(mapped)"
	[ "$(mapped)" -gt 0 ]
}

mapped_none() {
	echo "mapped: $(mapped)"
	[ "$(mapped)" = 0 ]
}

start_vmm() {
	rm -f "$tmp/vmm"
	"$@" > "$tmp/vmm" 2> "$tmp/vmm.err" &
	vmm=$!
	while ! [ -s "$tmp/vmm" ] && kill -0 $vmm 2> /dev/null; do
		sleep 0.1
	done
	read -r _ vm_fd < "$tmp/vmm"
}

stop_vmm() {
	kill $vmm
	vmm_status=0
	wait $vmm || vmm_status=$?
	cp "$tmp/vmm" "$tmp/out"
	cat "$tmp/vmm.err"
	echo "the VMM's status: $vmm_status"
	[ $vmm_status = 0 ]
}

untraced() {
	sleep 0.5
	! grep -h TracerPid /proc/$vmm/task/*/status | grep -v '[^0-9]0$'
}

sum() {
	./kvm-prefault stat $vmm | sed -n "s/^sum  *//p" | tr -s ' ' | cut -d' ' -f"$1"
}

# The number of mapped pages grows, or does not.
grows() {
	before=$(sum 2)
	sleep 0.5
	after=$(sum 2)
	echo "$before -> $after"
	[ "$after" -gt "$before" ]
}

stays() {
	before=$(sum 2)
	sleep 0.5
	after=$(sum 2)
	echo "$before -> $after"
	[ "$after" = "$before" ]
}

echo 0 > $param
ok "probe" gives 0 ./kvm-prefault probe
ok "probe: maximum" says '^maximum: *[1-9][0-9]*[MG]$'
ok "probe: default off" says '^module default: off$'
echo 65536 > $param
gives 0 ./kvm-prefault probe
ok "probe: default 64K" says '^module default: 64K$'
echo 0 > $param

# run
ok "without the tool" gives 0 ./vmm --seconds 1
ok "without the tool nothing is mapped" mapped_none
ok "run" gives 0 ./kvm-prefault run -- ./vmm --seconds 1
ok "run maps" mapped_some
for option in --drop --helper --fork --exec --two; do
	ok "run, VMM with $option" gives 0 ./kvm-prefault run -- ./vmm --seconds 1 $option
	ok "run maps, VMM with $option" mapped_some
done
ok "run: exit status" gives 7 ./kvm-prefault run -- ./vmm --seconds 1 --status 7
./kvm-prefault run --verbose --size 64K --fixed -- ./vmm --seconds 1 > "$tmp/out" 2> "$tmp/err"
ok "run --verbose" warns '^kvm-prefault: VM [0-9]* of process [0-9]*: window 64K, fixed$'
ok "run: no such program" gives 127 ./kvm-prefault run -- ./nothing
ok "run: a program that is none" gives 126 ./kvm-prefault run -- /tmp
ok "run: not a VMM" gives 0 ./kvm-prefault run -- ./vmm --nothing
ok "run: size not a power of two" gives 7 ./kvm-prefault run --size 3M -- ./vmm
ok "run: size too large" gives 7 ./kvm-prefault run --size 64G -- ./vmm
ok "run: bad size" gives 2 ./kvm-prefault run --size 2X -- ./vmm
echo 2097152 > $param
ok "run --size off" gives 0 ./kvm-prefault run --size off -- ./vmm --seconds 1
ok "run --size off: the default does not count" mapped_none
echo 0 > $param

start_vmm ./kvm-prefault run -- ./vmm
ok "run: the process is the VMM" grep -q "^vmm$" /proc/$vmm/comm
ok "run: nothing is traced" untraced
ok "run: the VMM ends well" stop_vmm

ok "run: the helper is killed" gives 0 ./inject_test kill-run 20 ./kvm-prefault run -- ./vmm --runs 20

# set and stat
start_vmm ./vmm
ok "stat" gives 0 ./kvm-prefault stat $vmm
ok "stat: nothing yet" stays
ok "set" gives 0 ./kvm-prefault set $vmm
ok "set: names the VM" says "^VM $vm_fd: window 2M$"
ok "set: nothing is traced" untraced
ok "set maps" grows
ok "set --vm, fixed" gives 0 ./kvm-prefault set $vmm --vm "$vm_fd" --size 64K --fixed
ok "set --vm: names the window" says "^VM $vm_fd: window 64K, fixed$"
ok "set off" gives 0 ./kvm-prefault set $vmm --size off
ok "set off maps no more" stays
ok "set again" gives 0 ./kvm-prefault set --size 1M $vmm
ok "stat -i" gives 0 ./kvm-prefault stat $vmm -i 0.3 -n 2
ok "stat -i: rates" says 'mapped/s'
ok "stat --json" gives 0 ./kvm-prefault stat $vmm --json
ok "stat --json: sums" says '"sum":{"prefault_windows":[1-9]'
ok "stat: not a thread is traced" untraced

ok "set: value refused" gives 7 ./kvm-prefault set $vmm --size 3M
ok "set: too large" gives 7 ./kvm-prefault set $vmm --size 64G
ok "set: not a VM" gives 4 ./kvm-prefault set $vmm --vm 0
ok "set: not permitted" gives 5 ./inject_test as 65534 ./kvm-prefault set $vmm
ok "set: says what is missing" warns CAP_SYS_PTRACE
ok "stat: not permitted" gives 5 ./inject_test as 65534 ./kvm-prefault stat $vmm
ok "set: no process" gives 3 ./kvm-prefault set 99999999
ok "stat: no process" gives 3 ./kvm-prefault stat 99999999
ok "set: not a VMM" gives 4 ./kvm-prefault set 1
ok "stat: not a VMM" gives 4 ./kvm-prefault stat 1
kill -STOP $vmm
ok "set: stopped process" gives 10 ./kvm-prefault set $vmm
kill -CONT $vmm
ok "set: continued process" gives 0 ./kvm-prefault set $vmm
ok "set: usage" gives 2 ./kvm-prefault set
ok "no command" gives 2 ./kvm-prefault nothing

# Killed with its work half done, and the VMM does not notice.
i=0
while [ $i -lt 20 ]; do
	./kvm-prefault set $vmm > /dev/null 2>&1 &
	tool=$!
	sleep 0.0$((i % 7))
	kill -KILL $tool 2> /dev/null
	./kvm-prefault stat $vmm > /dev/null 2>&1 &
	tool=$!
	sleep 0.0$((i % 5))
	kill -KILL $tool 2> /dev/null
	i=$((i + 1))
done
ok "set after 40 kills" gives 0 ./kvm-prefault set $vmm
ok "set after 40 kills maps" grows
ok "the VMM ends well" stop_vmm

# A VMM that would be killed for the call.  It need not be possible here.
start_vmm ./vmm --seccomp
if kill -0 $vmm 2> /dev/null; then
	ok "set: seccomp filter" gives 9 ./kvm-prefault set $vmm
	ok "stat: seccomp filter, debugfs" gives 0 ./kvm-prefault stat $vmm
	ok "the VMM under a filter ends well" stop_vmm
fi

rm -r "$tmp"
echo "1..$number"
[ $failed = 0 ]
