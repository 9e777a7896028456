# SPDX-License-Identifier: GPL-2.0
# Running make in the source trees. Sourced after lib.sh and source.sh, with an
# architecture loaded.

export CCACHE_DIR=$LAB_CACHE/ccache CCACHE_DEPEND=1 CCACHE_MAXSIZE=10G CCACHE_NOHASHDIR=1
# Nothing in a kernel depends on when and where it was built.
export KBUILD_BUILD_TIMESTAMP=0 KBUILD_BUILD_USER=lab KBUILD_BUILD_HOST=lab

# kmake TREE OBJ ARGS...: the kernel's make, with objects in TREE/OBJ.
kmake() {
	local tree=$1 obj=$2

	shift 2
	LOCALVERSION=-$tree make -C "$LAB_TREES/$tree" O="$obj" ARCH="$KERNEL_ARCH" \
		CROSS_COMPILE="$CROSS" CC="ccache ${CROSS}gcc" -j"$LAB_JOBS" "$@"
}

# Where the selftests are built: always in our tree.
TESTS_OBJ=o-$LAB_ARCH-tests
TESTS_DIR=$LAB_TREES/ours/$TESTS_OBJ/tests

# tests_make ARGS...: the KVM selftests' make, static programs.
tests_make() {
	mkdir -p "$TESTS_DIR"
	make -C "$LAB_TREES/ours/tools/testing/selftests/kvm" ARCH="$KERNEL_ARCH" \
		CROSS_COMPILE="$CROSS" CC="ccache ${CROSS}gcc" OUTPUT="$TESTS_DIR" \
		KHDR_INCLUDES="-isystem $LAB_TREES/ours/$TESTS_OBJ/usr/include" \
		EXTRA_CFLAGS=-static "$@"
}

# tool_make DIR: tools/kvm/kvm-prefault with its tests, in DIR.
tool_make() {
	local source=$LAB_TREES/ours/tools/kvm/kvm-prefault

	mkdir "$1"
	make -C "$source" CC="${CROSS}gcc" OUTPUT="$1" \
		CPPFLAGS="-isystem $LAB_TREES/ours/$TESTS_OBJ/usr/include" CFLAGS="-O2 -Werror" LDFLAGS=-s \
		all tests
	cp "$source"/tests/*.sh "$1"
}

# logged TITLE LOG COMMAND...: runs COMMAND with its output in LOG, showing
# progress, and shows what went wrong if it fails.
logged() {
	local title=$1 log=$2 start=$SECONDS ticker status=0

	shift 2
	mkdir -p "${log%/*}"
	say "$title"
	(
		# The sleep must not outlive us: it holds our locks and our stderr.
		trap 'kill "$nap" 2> /dev/null; exit' TERM
		while sleep 20 & nap=$!; wait "$nap" && kill -0 $$ 2> /dev/null; do
			say "$title: $(grep -cE '^  [A-Z0-9_]+ |^ccache ' "$log" || :) steps," \
				"$(((SECONDS - start) / 60))m$(((SECONDS - start) % 60))s"
		done
	) &
	ticker=$!
	"$@" > "$log" 2>&1 < /dev/null || status=$?
	kill "$ticker" 2> /dev/null || :
	wait "$ticker" 2> /dev/null || :
	[ $status -ne 0 ] || return 0
	{ grep -E -A3 -m 10 'error|Error|\*\*\*|undefined' "$log" || tail "$log"; } | head -n 40 >&2
	die "$title failed; the whole output is in $log"
}
