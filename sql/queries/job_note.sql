-- $1 table text: replay, redrive or verification, $2 id bigint, $3 nonce bigint, $4 done bigint, $5 state text, $6 lease in ms
-- bigint, $7 error text, $8 more json: further columns of the row
select outbox.job_note($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text, $6::bigint, $7::text, $8::json)::int
