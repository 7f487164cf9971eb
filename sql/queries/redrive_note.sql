-- $1 id bigint, $2 nonce bigint, $3 done bigint, $4 state text, $5 lease in ms bigint, $6 error text
select outbox.redrive_note($1::bigint, $2::bigint, $3::bigint, $4::text, $5::bigint, $6::text)::int
