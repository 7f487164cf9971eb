#!/bin/bash
# Builds the program in a module of its own in $CACHE: protoc writes the package of lookback.proto there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go=$(realpath ../../../support/go.sh)
mkdir -p "$CACHE/module" "$CACHE/plugins"
cp ./*.go go.mod go.sum "$CACHE/module/"
cp ../../../../docs/reference/lookback.proto "$CACHE/module/"
cd "$CACHE/module"
"$go" build -o "$CACHE/plugins/" google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc
PATH=$CACHE/plugins:$PATH protoc --go_out=. --go_opt=module=outbox-relay \
	--go-grpc_out=. --go-grpc_opt=module=outbox-relay lookback.proto
"$go" build -o "$CACHE/program" .
