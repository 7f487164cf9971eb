-- For each claim, in order: is it still ours, for a whole lease from now on?
-- $1 name text, $2 ids bytea[], $3 tokens bigint[], $4 lease bigint, in milliseconds
select unnest(outbox.claim_renew($1::text, $2::bytea[], $3::bigint[], $4::bigint * interval '1 ms'))::int
