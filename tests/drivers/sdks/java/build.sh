#!/bin/bash
# Builds the program into $CACHE; protoc and its plug-in for gRPC come as artifacts of Maven.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mvn -q -B -Dcache="$CACHE" compile dependency:copy-dependencies -DincludeScope=runtime \
	-DoutputDirectory="$CACHE/libs"
