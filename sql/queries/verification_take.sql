-- $1 id bigint, $2 nonce bigint, $3 owner text, $4 lease in ms bigint
select outbox.verification_take($1::bigint, $2::bigint, $3::text, $4::bigint)::int
