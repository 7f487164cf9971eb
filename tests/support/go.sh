#!/bin/bash
# Runs Go with the given arguments. Debian 12 has Go 1.19, which is too old for some modules: there it fetches a newer
# one, which the module proxy has as a module.
set -euo pipefail
newer=go1.23.4

case $(go env GOVERSION) in
go1.1[0-9]* | go1.20*)
	module=golang.org/toolchain@v0.0.1-$newer.linux-$(go env GOARCH)
	home=$(cd / && go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	# an old Go unpacks no file as a program
	[ -x "$home/bin/go" ] || chmod -R u+x "$home/bin" "$home/pkg/tool"
	export GOTOOLCHAIN=local
	exec "$home/bin/go" "$@" ;;
*) exec go "$@" ;;
esac
