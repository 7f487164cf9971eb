-- Takes a claim and returns its token; null: another holder has the id.
-- $1 name text, $2 ids bytea[] (one), $3 lease bigint, in milliseconds
select outbox.claim_take($1::text, ($2::bytea[])[1], $3::bigint * interval '1 ms')
