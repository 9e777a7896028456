# SPDX-License-Identifier: GPL-2.0
# Debian packages that the system's own sources do not offer, without changing
# those sources: a private apt configuration in the cache folder that takes
# the mirror from the system's configuration. Sourced after lib.sh.

# The mirror of the Debian archive that this machine is set up to use.
debian_mirror() {
	apt-get indextargets --format '$(REPO_URI) $(COMPONENT) $(RELEASE)' 2>/dev/null |
		awk '$2 == "main" && $3 !~ /-/ { print $1; exit }'
}

# The release (codename) of this machine.
debian_release() {
	. /etc/os-release
	echo "${VERSION_CODENAME:?this is not a Debian release}"
}

# private_apt NAME SUITE...: prints the path of a configuration file for
# "apt-get -c" that knows the given suites and nothing else. The package state
# of the system is used unless the caller overrides it.
private_apt() {
	local dir=$LAB_CACHE/apt/$1 mirror suite

	shift
	mirror=$(debian_mirror)
	[ -n "$mirror" ] || die "no Debian mirror in this machine's apt sources"
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/empty"
	for suite; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
	done > "$dir/sources.list"
	cat > "$dir/apt.conf" <<-CONF
	Dir::Etc::sourcelist "$dir/sources.list";
	Dir::Etc::sourceparts "$dir/empty";
	Dir::State::lists "$dir/lists";
	Dir::Cache "$dir/cache";
	Acquire::Languages "none";
	APT::Sandbox::User "root";
	CONF
	echo "$dir/apt.conf"
}
