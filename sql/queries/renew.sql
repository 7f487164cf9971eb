-- $1 publisher text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 new nonce bigint, $6 lease in ms bigint,
-- $7 deaths int[] or null
-- With the snapshot in front of this transaction, as in peek.sql.
select outbox.renew($1::text, $2::int, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::int[]),
	pg_current_snapshot()::text
