#!/bin/bash
# Fresh systems of a Debian release, for tests that install packages: tests/support/chroot.sh
#
#   chroot.sh fetch RELEASE           makes the bare system once, in the user's cache
#   chroot.sh make RELEASE FOLDER     unpacks it
#   chroot.sh run RELEASE FOLDER COMMAND…   runs a command in it
#   chroot.sh path RELEASE            prints the path of its archive, and makes it first if need be
#
# The mirror, the proxy and the keys of Debian are those of the system. The network is the machine's own,
# so that programs inside reach the servers of a test. Packages that apt downloads inside are kept in the
# cache, so that only the first run needs the mirror. All of this needs root.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/debian.sh" # keyring, mirror

die() {
	echo "chroot: $*" >&2
	exit 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo --preserve-env "$@"; fi
}

# fetch_system FOLDER: apt's lists stay in it, for what is installed later.
fetch_system() {
	local uri proxies=() line
	uri=$(mirror)
	[ "$uri" ] || die "no mirror of Debian in apt's lists; as root, run: apt-get update"
	while read -r line; do
		proxies+=("--aptopt=$line")
	done < <(apt-config dump --format '%F "%v";%n' Acquire | grep -i '::proxy' || true)
	as_root mmdebstrap --quiet --variant=minbase --skip=cleanup/apt/lists "${proxies[@]}" \
		--aptopt='APT::Sandbox::User "root"' --aptopt='Acquire::Languages "none"' \
		"$release" "$1/system.tar" "deb [signed-by=$keyring] $uri $release main" </dev/null >&2
}

fetch() {
	[ ! -f "$cache/system.tar" ] || return 0
	local fresh
	echo "chroot: a bare system of Debian $release (about 200 MB) into $cache" >&2
	mkdir -p "$(dirname "$cache")"
	fresh=$(mktemp -d "$cache.XXXXXX")
	chmod 755 "$fresh"
	mkdir -p "$fresh/archives/partial"
	if ! fetch_system "$fresh"; then
		as_root rm -rf "$fresh"
		die "mmdebstrap could not make a system of Debian $release (its message is above)." \
			"Does the mirror in apt's sources have that release?"
	fi
	# Only a complete folder ever carries the final name; another run may have been faster.
	mv -T "$fresh" "$cache" 2>/dev/null || as_root rm -rf "$fresh"
	[ -f "$cache/system.tar" ] || die "cannot write $cache"
}

make() {
	as_root mkdir -p "$1"
	as_root tar -x --numeric-owner --xattrs -f "$cache/system.tar" -C "$1"
	printf '#!/bin/sh\nexit 101\n' | as_root install /dev/stdin "$1/usr/sbin/policy-rc.d" # starts no service
}

# Mounts end with the command, and so does what it started.
run() {
	local folder=$1
	shift
	# shellcheck disable=SC2016
	as_root unshare --mount --pid --fork --kill-child sh -euc '
		root=$1 archives=$2
		shift 2
		mount -t proc proc "$root/proc"
		mount --bind "$archives" "$root/var/cache/apt/archives"
		exec chroot "$root" "$@"' sh "$folder" "$cache/archives" "$@"
}

command=${1:-} release=${2:-}
[[ $release =~ ^[a-z]+$ ]] || die "usage: chroot.sh fetch RELEASE | make RELEASE FOLDER | run RELEASE FOLDER COMMAND… | path RELEASE"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/outbox-relay/debian-$release
case $command in
fetch) fetch ;;
make) fetch && make "${3:?make needs a folder}" ;;
run) run "${@:3}" ;;
path) fetch && echo "$cache/system.tar" ;;
*) die "unknown command $command" ;;
esac
