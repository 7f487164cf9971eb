-- $1 id bigint, $2 nonce bigint, $3 last id bigint, $4 done bigint, $5 state text, $6 lease in ms bigint, $7 error text
select outbox.replay_note($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::text, $6::bigint, $7::text)::int
