# SPDX-License-Identifier: GPL-2.0
# The two source trees of the cache folder. Sourced after lib.sh.
#
#   base   the kernel as its package (or LINUX=DIR) has it, a git repository
#          whose tag "base" is that state
#   ours   a worktree of it with patches/ applied and this repo's files added
#
# Only files whose content changes are written, so that make rebuilds little.
# Builds happen inside the trees, in folders that git and the syncing ignore.

# LINUX=DIR has trees of its own: its versions differ from the package's.
if [ -n "${LINUX:-}" ]; then
	LINUX=$(cd "$LINUX" 2> /dev/null && pwd) || die "LINUX: no such folder"
	LAB_TREES=$LAB_CACHE/tree-$(echo "$LINUX" | sha256sum | cut -c1-8)
else
	LAB_TREES=$LAB_CACHE/tree
fi

# git without the user's configuration, whoever runs it.
lab_git() {
	GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 git \
		-c user.name=lab -c user.email=lab@localhost -c core.autocrlf=false \
		-c gc.auto=0 "$@"
}

# commit_base DIR VERSION: makes DIR's content the state "base".
commit_base() {
	lab_git -C "$1" init -q
	lab_git -C "$1" add -A --force
	lab_git -C "$1" commit -q --allow-empty -m "Linux $2"
	lab_git -C "$1" tag -f base > /dev/null
}

unpack_package() {
	local tar version new

	tar=$("$LAB_DIR/fetch")
	version=$(basename "$tar" .tar.xz)
	if [ -e "$LAB_TREES/base/.git" ]; then
		# Trees made before this mark existed are of the pinned version.
		[ -e "$LAB_TREES/version" ] || echo "$version" > "$LAB_TREES/version"
		[ "$(cat "$LAB_TREES/version")" != "$version" ] || return 0
	fi
	need_space "$LAB_TREES" 6000
	say "unpacking the kernel source"
	new=$LAB_TREES/new
	rm -rf "$new" "$LAB_TREES/base" "$LAB_TREES/ours"
	mkdir -p "$new"
	tar -xf "$tar" -C "$new" --strip-components=1
	commit_base "$new" "$version"
	mv "$new" "$LAB_TREES/base"
	echo "$version" > "$LAB_TREES/version"
}

copy_linux_dir() {
	local base=$LAB_TREES/base version

	[ -e "$LINUX/Makefile" ] && [ -d "$LINUX/virt/kvm" ] ||
		die "LINUX=$LINUX is not a kernel tree"
	version=$(awk '$2 == "=" && /^(VERSION|PATCHLEVEL|SUBLEVEL) / { v = v s $3; s = "." }
		/^NAME/ { print v; exit }' "$LINUX/Makefile")
	[[ $version == 7.3.* ]] || die "LINUX=$LINUX is Linux $version, this needs 7.3.y"
	[ -e "$base/.git" ] || need_space "$LAB_TREES" 6000
	mkdir -p "$base"
	# What a build leaves in its tree stays behind.
	rsync -a --delete --exclude=/.git --exclude='/o-*' --exclude='*.o' --exclude='.*.cmd' \
		--exclude=/.config --exclude=/include/config --exclude=/include/generated \
		--exclude='/arch/*/include/generated' "$LINUX/" "$base/"
	if ! lab_git -C "$base" diff --quiet base 2> /dev/null ||
	   [ -n "$(lab_git -C "$base" ls-files -o --exclude='/o-*')" ]; then
		commit_base "$base" "$version"
	fi
}

# Brings tree/base up to date; call with that tree's lock held.
sync_base() {
	if [ -n "${LINUX:-}" ]; then
		copy_linux_dir
	else
		unpack_package
	fi
}

# Names the state "base" by its content.
base_id() {
	lab_git -C "$LAB_TREES/base" rev-parse 'base^{tree}'
}

# The files that a patch touches.
patched_files() {
	sed -n 's,^\(---\|+++\) [ab]/\([^\t]*\).*,\2,p' "$@" | sort -u
}

# stage_ours DIR: puts into DIR every file that differs from base, with the
# content that it shall have, and into DIR/../gone those that shall not exist.
stage_ours() {
	local stage=$1 patches files p f error

	mapfile -t patches < <(repo_patches)
	if [ ${#patches[@]} -gt 0 ]; then
		patched_files "${patches[@]}" | while read -r f; do
			if [ -e "$LAB_TREES/base/$f" ]; then
				(cd "$LAB_TREES/base" && cp --parents "$f" "$stage")
			fi
		done
		for p in "${patches[@]}"; do
			error=$(cd "$stage" && GIT_CEILING_DIRECTORIES=$(dirname "$stage") \
				lab_git apply -p1 --whitespace=nowarn "$p" 2>&1) ||
				die "patches/$(basename "$p") does not apply: $(
					head -n 1 <<< "$error" | sed 's/^error: //')"
		done
		patched_files "${patches[@]}" | while read -r f; do
			[ -e "$stage/$f" ] || echo "$f"
		done > "$stage.gone"
	else
		: > "$stage.gone"
	fi
	repo_files "${KERNEL_FOLDERS[@]}" > "$stage.files"
	while read -r f; do
		[ ! -e "$LAB_TREES/base/$f" ] ||
			die "$f exists in the kernel: change it by a patch in patches/"
		[ ! -e "$stage/$f" ] || die "$f is both a file here and made by a patch"
	done < "$stage.files"
	rsync -a --files-from="$stage.files" "$LAB_REPO/" "$stage/"
}

# Makes tree/ours base + patches + files; call with that tree's lock held.
sync_ours() {
	local ours=$LAB_TREES/ours tmp f

	if [ ! -e "$ours/.git" ]; then
		lab_git -C "$LAB_TREES/base" worktree prune
		lab_git -C "$LAB_TREES/base" worktree add -q --force --detach "$ours" base >&2
	elif [ "$(lab_git -C "$ours" rev-parse 'HEAD^{tree}')" != "$(base_id)" ]; then
		lab_git -C "$ours" checkout -q --force --detach base
	fi
	tmp=$(scratch_dir sync)
	mkdir "$tmp/stage"
	# In a subshell: a failure must not leave the scratch folder behind.
	if ! (stage_ours "$tmp/stage"); then
		rm -rf "$tmp"
		exit "$LAB_FAIL"
	fi
	# What differs from base now, and shall not any more.
	lab_git -C "$ours" status --porcelain --no-renames -uall | cut -c4- |
		while read -r f; do
			[ ! -e "$tmp/stage/$f" ] || continue
			! grep -qxF "$f" "$tmp/stage.gone" || continue
			if lab_git -C "$ours" cat-file -e "HEAD:$f" 2> /dev/null; then
				lab_git -C "$ours" checkout -q HEAD -- "$f"
			else
				rm -f "$ours/$f"
			fi
		done
	rsync -rlp --checksum "$tmp/stage/" "$ours/"
	while read -r f; do
		rm -f "$ours/$f"
	done < "$tmp/stage.gone"
	rm -rf "$tmp"
}
