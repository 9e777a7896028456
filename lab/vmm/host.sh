# SPDX-License-Identifier: GPL-2.0
# host.sh SCENARIO...: inside the machine, runs an unmodified VMM with a Linux
# guest. Scenarios: boot, postcopy, restore, dirty. From the environment: QEMU,
# VMM_MACHINE, VMM_APPEND, VMM_FAULTS, VMM_SMP (see lab/demo-vmm).
#
# Prints lines for lab/demo-vmm:
#
#   row SCENARIO WINDOW EXITS FAULTS WINDOWS MAPPED ABSENT CPU-NANOSECONDS
#   ok SCENARIO WINDOW: WHAT, or "not ok"
#   note SCENARIO WINDOW: TEXT

mib=64
tmp=/tmp/vmm
ram=/dev/shm/ram
state=/dev/shm/state
mkdir -p $tmp
cd $tmp || exit 1
failed=0 seq=0
scenario='' window=''

# check WHAT COMMAND...
check() {
	what=$1
	shift
	if "$@"; then
		echo "ok $scenario $window: $what"
	else
		echo "not ok $scenario $window: $what"
		failed=1
	fi
}

note() {
	echo "note $scenario $window: $1"
}

# give_up WHAT: shows what the virtual machines have to say.
give_up() {
	echo "not ok $scenario $window: $1"
	tail -n 15 ./*.log ./*.out ./*.qmp
	exit 1
}

# wait_for VM COMMAND...: until it is true; no longer than the VM lives.
wait_for() {
	waits=0 vm=$1
	shift
	until "$@"; do
		kill -0 "$(cat $vm.pid)" 2> /dev/null || give_up "the VMM of $vm has ended"
		waits=$((waits + 1))
		[ $waits -lt 6000 ] || give_up "no end of: $*"
		sleep 0.1
	done
}

# start VM WINDOW ARG...: a VMM whose console and monitor are files.
start() {
	vm=$1 size=$2
	shift 2
	rm -f $vm.*
	mkfifo $vm.in $vm.cmd
	: > $vm.out
	: > $vm.qmp
	# Holds the ends open that are written to: without it the VMM would wait
	# for them, and take the end of a line for the end of its input.
	sleep 100000 <> $vm.in 3<> $vm.cmd &
	echo $! > $vm.holder
	kvm-prefault run --size $size -- "$QEMU" -accel kvm -cpu host \
		-M "$VMM_MACHINE,memory-backend=ram" -object "$backend" \
		-m ${mib}M -smp "${VMM_SMP:-1}" -no-user-config -nodefaults -display none -no-reboot \
		-chardev file,id=console,path=$vm.out,input-path=$vm.in -serial chardev:console \
		-chardev file,id=qmp,path=$vm.qmp,input-path=$vm.cmd -mon chardev=qmp,mode=control \
		-kernel /lab/guest.kernel -initrd /lab/guest.cpio -append "$VMM_APPEND" \
		"$@" > $vm.log 2>&1 &
	echo $! > $vm.pid
	wait_for $vm grep -q QMP $vm.qmp
	qmp $vm qmp_capabilities
}

# qmp VM COMMAND [ARGUMENTS]: leaves the answer in "reply".
qmp() {
	seq=$((seq + 1))
	echo "{\"execute\":\"$2\",\"id\":$seq${3:+,\"arguments\":{$3\}}}" > $1.cmd
	wait_for $1 grep -q "\"id\": $seq[,}]" $1.qmp
	reply=$(grep "\"id\": $seq[,}]" $1.qmp)
	case $reply in *'"error":'*) give_up "$2: $reply" ;; esac
}

# asks VM COMMAND PATTERN
asks() {
	qmp "$1" "$2"
	case $reply in
	*'"status": "failed"'*) give_up "$2: $reply" ;;
	*$3*) return 0 ;;
	esac
	return 1
}

# tell VM COMMAND: waits for the guest's answer and leaves it in "answer".
tell() {
	echo "$2" > $1.in
	wait_for $1 grep -q "^guest: $2 done" $1.out
	answer=$(grep "^guest: $2 done" $1.out | tail -n 1)
}

sound() {
	case $answer in *' errors 0') return 0 ;; esac
	echo "# $answer"
	return 1
}

# stop VM
stop() {
	kill "$(cat $1.pid)" "$(cat $1.holder)" 2> /dev/null
	wait "$(cat $1.pid)" "$(cat $1.holder)" 2> /dev/null
}

# figures VM: exits, faults, windows, mapped, absent and nanoseconds until now.
figures() {
	pid=$(cat $1.pid)
	stats=/sys/kernel/debug/kvm/$pid-*
	# shellcheck disable=SC2086,SC2046
	echo $(cat $stats/exits) \
		$(for f in $VMM_FAULTS; do cat $stats/$f; done | awk '{ n += $1 } END { print n }') \
		$(cat $stats/prefault_windows $stats/prefault_mapped $stats/prefault_absent) \
		$(/lab/cputime $pid)
}

# The guest is idle: nothing changes between the one and the other.
same_stat() {
	# shellcheck disable=SC2046
	set -- $1 $(figures $1) $(kvm-prefault stat "$(cat $1.pid)" | tail -n 1)
	[ "$4 $5 $6" = "$9 ${10} ${11}" ]
}

# row VM [BEFORE]: what happened since the figures were BEFORE.
row() {
	vm=$1
	now=$(figures $vm)
	now=$(echo "$now ${2:-0 0 0 0 0 0}" | awk '{
		print $1 - $7, $2 - $8, $3 - $9, $4 - $10, $5 - $11, $6 - $12 }')
	echo "row $scenario $window $now"
	# shellcheck disable=SC2086
	set -- $now
	faults=$2 mapped=$4
	if [ "$window" = off ]; then
		check "nothing was prefaulted" [ "$mapped" = 0 ]
	else
		check "$mapped pages were prefaulted" [ "$mapped" -gt 0 ]
		check "kvm-prefault stat says so" same_stat $vm
	fi
}

# Guest memory in a file that the page cache has, as after a restore from a
# snapshot; with "prealloc" the VMM's page tables have it as well.
make_ram() {
	dd if=/dev/zero of=$ram bs=1M count=$mib 2> /dev/null
	backend=memory-backend-file,id=ram,size=${mib}M,mem-path=$ram,share=on$1
}

# save VM: into a file, and goes on.
save() {
	tell $1 map
	grep '^map ' $1.out > region
	qmp $1 stop
	qmp $1 migrate "\"uri\":\"file:$state\""
	wait_for $1 asks $1 query-migrate '"status": "completed"'
	qmp $1 cont
}

# A guest whose memory is in use has been saved.
need_state() {
	[ ! -e $state ] || return 0
	make_ram
	start vm off
	wait_for vm grep -q '^guest: ready' vm.out
	save vm
	stop vm
}

# restored VM WINDOW ARG...: leaves the guest stopped.
restored() {
	make_ram
	start "$@" -S -incoming "file:$state"
	wait_for $1 asks $1 query-status '"status": "paused"'
}

boot() {
	scenario=boot
	for window in off 2M; do
		boot_from ,prealloc=on
		[ $window = off ] && faults_off=$faults ||
			check "a tenth of the faults, or less" [ $((faults * 10)) -le $faults_off ]
	done
	# What the VMM's page tables do not have is absent.
	scenario=boot-unpopulated
	boot_from ''
	check "fewer faults" [ $faults -lt $faults_off ]
}

# boot_from BACKEND-OPTIONS
boot_from() {
	make_ram $1
	start vm $window
	wait_for vm grep -q '^guest: ready' vm.out
	check "Linux has booted" true
	tell vm 'work 1'
	check "its memory is sound" sound
	row vm
	[ -e $state ] || save vm
	echo quit > vm.in
	waits=0
	while kill -0 "$(cat vm.pid)" 2> /dev/null && [ $waits -lt 300 ]; do
		waits=$((waits + 1))
		sleep 0.1
	done
	check "the VMM has ended by itself" [ $waits -lt 300 ]
	stop vm
}

# One that serves both directions, since the host has no sockets: the command of
# "exec:" has the stream on its stdin and stdout.
pipes() {
	echo "exec:exec 3<&0; cat <&3 > $tmp/$1 & cat < $tmp/$2"
}

postcopy() {
	scenario=postcopy window=off
	need_state
	caps='"capabilities":[{"capability":"postcopy-ram","state":true}]'
	for window in off 2M; do
		rm -f there back
		mkfifo there back
		restored src $window
		qmp src cont
		echo loop > src.in
		wait_for src grep -q '^guest: looping' src.out
		backend=memory-backend-ram,id=ram,size=${mib}M
		start dst $window -incoming defer
		qmp src migrate-set-capabilities "$caps"
		qmp dst migrate-set-capabilities "$caps"
		qmp dst migrate-incoming "\"uri\":\"$(pipes back there)\""
		qmp src migrate "\"uri\":\"$(pipes there back)\""
		qmp src migrate-start-postcopy
		wait_for src asks src query-migrate '"status": "completed"'
		requests=$(echo "$reply" | sed -n 's/.*"postcopy-requests": \([0-9]*\).*/\1/p')
		check "the guest has waited for $requests pages" [ "${requests:-0}" -gt 0 ]
		wait_for dst asks dst query-migrate '"status": "completed"'
		wait_for dst asks dst query-status '"status": "running"'
		tell dst read
		check "its memory is sound" sound
		answer=$(grep '^guest: loop done' dst.out)
		rounds=$(echo "$answer" | sed 's/.*rounds \([0-9]*\).*/\1/')
		check "its workload went on all the time, $rounds rounds" sound
		row dst
		stop src
		stop dst
	done
}


restore() {
	scenario=restore window=off
	need_state
	for window in off 2M; do
		restored vm $window
		before=$(figures vm)
		qmp vm cont
		tell vm 'work 1'
		check "its memory is sound" sound
		row vm "$before"
		[ $window = off ] && faults_off=$faults ||
			check "a tenth of the faults, or less" [ $((faults * 10)) -le $faults_off ]
		stop vm
	done
}

# compare: what KVM has reported against what the guest has written, of the
# guest's workload and elsewhere; leaves what was reported in reported.WINDOW.
# The first log of each slot is where the VMM begins.
compare() {
	awk '
		FILENAME == "region" { for (i = 0; i < $4; i++) gfn[$2 + i] = $3 + i * $5; next }
		FILENAME == "vm.out" {
			if ($1 == "wrote")
				for (i = 0; i < $3; i++)
					written[gfn[$2 + i]]
			next
		}
		$1 == "log" { counts = seen[$2]++ == 1 }
		$1 == "dirty" && counts { for (i = 0; i < $3; i++) reported[$2 + i] }
		END {
			for (i in gfn)
				ours[gfn[i]]
			for (g in reported) {
				print g > "reported." window
				if (!(g in ours))
					others++
				else if (!(g in written))
					unwritten++
			}
			for (g in written) {
				n++
				missing += !(g in reported)
			}
			print n + 0, missing + 0, unwritten + 0, others + 0, length(ours)
		}' window="$window" region vm.out dirty.$window
}

# none_but FILE OTHER: each line of FILE is in OTHER, too.
none_but() {
	awk 'NR == FNR { a[$1]; next }
		!($1 in a) && n++ < 10 { print "# page", $1 }
		END { if (n) print "#", n, "pages"; exit n > 0 }' "$2" "$1"
}

# logged SECONDS: restores the guest, and has it read one in two and write one in
# eight of its pages while the VMM logs for so long. Fails if that was not long enough.
logged() {
	: > dirty.$window
	LD_PRELOAD=/lab/dirtylog.so DIRTY_LOG=$tmp/dirty.$window restored vm $window
	qmp vm cont
	qmp vm calc-dirty-rate "\"calc-time\":$1,\"mode\":\"dirty-bitmap\""
	wait_for vm grep -q '^end' dirty.$window
	# The first logs are read, and the pages protected, under a lock that this
	# needs as well.
	qmp vm query-status
	logs=$(grep -c '^end' dirty.$window)
	before=$(figures vm)
	tell vm 'dirty 8'
	[ $logs = "$(grep -c '^end' dirty.$window)" ]
}

dirty() {
	scenario=dirty window=off
	need_state
	for window in off 2M; do
		logged 10 || { stop vm; logged 60; } || give_up "the guest is too slow"
		check "its memory is sound" sound
		row vm "$before"
		tell vm written
		wait_for vm asks vm query-dirty-rate '"measured"'
		# shellcheck disable=SC2046
		set -- $(compare)
		note "of the workload's $5 pages half were read and $1 written, $(($1 - $2)) of these and $3 others reported; elsewhere $4"
		check "every page written is reported" [ "$1" -gt 0 -a "$2" = 0 ]
		[ $window = off ] && unwritten=$3 ||
			check "no more than $unwritten others are" [ "$3" -le "$unwritten" ]
		stop vm
	done
	check "every page reported is also reported with the window off" none_but reported.2M reported.off
}

export PATH=/lab/kvm-prefault:$PATH
for s; do
	$s
done
exit $failed
