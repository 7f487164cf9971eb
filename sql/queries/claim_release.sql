-- Releases a claim. Was the claim still ours?
-- $1 name text, $2 ids bytea[] (one), $3 token bigint
select outbox.claim_release($1::text, ($2::bytea[])[1], $3::bigint)::int
