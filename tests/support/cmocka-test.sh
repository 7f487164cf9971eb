#!/bin/bash
# Runs one cmocka program for `meson test --wrapper`: its results, test by test, go to the folder
# CMOCKA_RESULTS (summary.py counts them). meson keeps the exit status and the rest of the output.
name=$(basename "$1")
mkdir -p "$CMOCKA_RESULTS"
export CMOCKA_MESSAGE_OUTPUT=xml CMOCKA_XML_FILE="$CMOCKA_RESULTS/$name-%g.xml"
# ThreadSanitizer of this age does not know where newer kernels put things at random.
if [ "${NO_ASLR:-}" ] && setarch -R true 2>/dev/null; then
	exec setarch -R "$@"
fi
exec "$@"
