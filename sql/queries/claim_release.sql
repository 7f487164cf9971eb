-- Releases claims. For each, in order: was it still ours?
-- $1 name text, $2 ids bytea[], $3 tokens bigint[]
select unnest(outbox.claim_release_many($1::text, $2::bytea[], $3::bigint[]))::int
