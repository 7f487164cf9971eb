-- Takes claims. For each id, in order, its token; null: another holder has the id.
-- $1 name text, $2 ids bytea[], $3 lease bigint, in milliseconds
select unnest(outbox.claim_take_many($1::text, $2::bytea[], $3::bigint * interval '1 ms'))
