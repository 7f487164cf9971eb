-- For each id, in order: 0 new and now claimed by this session, 1 claimed by another session, 2 done.
-- $1 name text, $2 ids bytea[], $3 times of their records timestamptz[], $4 window bigint, in
-- milliseconds
select unnest(outbox.processed_claim($1::text, $2::bytea[], $3::timestamptz[],
	$4::bigint * interval '1 ms'))
