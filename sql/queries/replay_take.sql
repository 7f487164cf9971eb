-- $1 id bigint, $2 nonce bigint, $3 owner text, $4 lease in ms bigint, $5 by relay boolean
select outcome, holder, wait_ms from outbox.replay_take($1::bigint, $2::bigint, $3::text, $4::bigint, $5::boolean)
