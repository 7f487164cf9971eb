-- Of each id, in order: is it new, and recorded in this transaction?
-- $1 name text, $2 ids bytea[], $3 times of their records timestamptz[], $4 window bigint, in
-- milliseconds
select unnest(outbox.processed_take($1::text, $2::bytea[], $3::timestamptz[],
	$4::bigint * interval '1 ms'))::int
