#!/bin/bash
# Runs the statements of docs/guide/write/sql.md, each for orders of its own.
set -euo pipefail

run() {
	psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}

echo "json 1 $(run -v order=1 -f pay.sql)"
echo "bytes 2 $(run -v order=2 -f pay_in_bytes.sql)"
order=3
for event in $(run -v first=3 -v last=5 -f pay_many.sql); do
	echo "json $((order++)) $event"
done
run -c "update orders set state = 'paid' where id = 6; insert into payments values (6, 'paid')"
echo "json 6 $(run -c 'select event_id from outbox.message order by id desc limit 1')"
# rolled back: it is no message of an order that is paid
mapfile -t once < <(run -c begin -f once.sql -f once.sql -c rollback)
[[ ${#once[@]} = 2 && ${once[0]} = "${once[1]}" ]] ||
	{ echo "a message with a unique key was written twice: ${once[*]}" >&2 && exit 1; }
state=$(run -f later.sql)
[[ $state =~ pending|scheduled ]] || { echo "state of a later message: $state" >&2 && exit 1; }
