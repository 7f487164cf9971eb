-- $1 reason text, $2 publisher text, $3 filter jsonb, $4 target text, $5 rate int, $6 snapshot pg_snapshot,
-- $7 shards int, $8 acked pg_snapshot[], $9 windows pg_snapshot[], $10 acked ids bigint[] (these four null:
-- all visible rows), $11 low id bigint, $12 high id bigint, $13 rows bigint, $14 nonce bigint, $15 owner text,
-- $16 lease in ms bigint, $17 caller text, $18 by relay boolean
select outbox.replay_create($1::text, $2::text, $3::jsonb, $4::text, $5::int, $6::pg_snapshot, $7::int,
	$8::pg_snapshot[], $9::pg_snapshot[], $10::bigint[], $11::bigint, $12::bigint, $13::bigint,
	$14::bigint, $15::text, $16::bigint, $17::text, $18::boolean)
