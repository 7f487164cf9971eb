# shellcheck shell=bash
# For scripts that fetch packages of Debian releases: where the system itself gets its release from.
# shellcheck disable=SC2034
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

mirror() {
	. /etc/os-release
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' \
		"Codename: $VERSION_CODENAME" 'Component: main' | head -n 1
}
