-- For each id, in order: is it new, and recorded in this transaction?
-- $1 name text, $2 ids bytea[], $3 times of their records timestamptz[], $4 window bigint, in
-- milliseconds
-- Any search_path: the session is not ours.
select pg_catalog.unnest(outbox.processed_take($1::pg_catalog.text, $2::pg_catalog.bytea[],
	$3::pg_catalog.timestamptz[], $4::bigint operator(pg_catalog.*) interval '1 ms'))::int
