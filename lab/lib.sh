# SPDX-License-Identifier: GPL-2.0
# Shared by the lab's scripts: sourced, never run. Needs bash.
#
# Names in capitals that start with LAB_ are set here and read everywhere.

set -euo pipefail
export LC_ALL=C

LAB_REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LAB_DIR=$LAB_REPO/lab
LAB_CACHE=${KVM_PREFAULT_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/kvm-prefault}
LAB_JOBS=${LAB_JOBS:-$(($(nproc) + 1))}
# Exit status of die: lab/run sets another one, to tell the lab's failures from
# those of the command that it runs.
LAB_FAIL=1

die() {
	echo "${0##*/}: $*" >&2
	exit "$LAB_FAIL"
}

# Progress goes to stderr: stdout belongs to the command that was asked for.
say() {
	echo "[lab] $*" >&2
}

# Reads lab/arch/ARCH.conf, which sets the variables that differ between
# architectures.
load_arch() {
	local arch=${1:-}

	[[ $arch =~ ^[a-z0-9]+$ && -r $LAB_DIR/arch/$arch.conf ]] ||
		die "unknown architecture '$arch' (known: $(known_archs))"
	LAB_ARCH=$arch
	# shellcheck source=/dev/null
	. "$LAB_DIR/arch/$arch.conf"
}

known_archs() {
	local f list=

	for f in "$LAB_DIR"/arch/*.conf; do
		f=${f##*/}
		list+="${f%.conf} "
	done
	echo "${list% }"
}

# The architectures whose kernel code is in this repo.
enabled_archs() {
	local arch

	for arch in $(known_archs); do
		(load_arch "$arch" && [ "$ENABLED" = yes ]) && echo "$arch"
	done
	return 0
}

# need_space DIR MIB: a full disk is said before the work starts.
need_space() {
	local free

	mkdir -p "$1"
	free=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
	[ "$free" -ge "$2" ] || die "$1 has $free MiB free, $2 MiB are needed"
}

# with_lock NAME COMMAND...: one holder at a time, for as long as COMMAND runs.
with_lock() {
	local lock_name=$1 lock_fd

	shift
	mkdir -p "$LAB_CACHE/lock"
	exec {lock_fd}>"$LAB_CACHE/lock/$lock_name"
	flock -n "$lock_fd" || { say "waiting for another run ($lock_name)"; flock "$lock_fd"; }
	"$@"
	exec {lock_fd}>&-
}

# A new private directory in the cache folder; its owner removes it.
scratch_dir() {
	mkdir -p "$LAB_CACHE/tmp"
	mktemp -d "$LAB_CACHE/tmp/$1.XXXXXX"
}

# The repo's whole files below the given folders, one path a line.
repo_files() {
	(
		cd "$LAB_REPO"
		git ls-files -co --exclude-standard -- "$@" | while read -r f; do
			[ ! -f "$f" ] || echo "$f"
		done | sort
	)
}

# The repo's folders that mirror the kernel's.
KERNEL_FOLDERS=(virt arch include tools Documentation lib mm)

repo_patches() {
	local p

	for p in "$LAB_REPO"/patches/*.patch; do
		[ ! -e "$p" ] || echo "$p"
	done
}
