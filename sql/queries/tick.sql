-- $1 slot text, $2 shard int, $3 shards int, $4 n bigint, $5 nonce bigint, $6 new nonce bigint,
-- $7 lease in ms bigint, $8 closed int, $9 acked id bigint, $10 destinations jsonb,
-- $11 new epoch bigint or null, $12 may open boolean, $13 must write boolean, $14 max rows int,
-- $15 max bytes bigint, $16 the snapshot last found empty, text or null
select verdict, seen, id, created_at, event_id, topic, key, payload, headers, partition
from outbox.tick($1::text, $2::int, $3::int, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::int,
	$9::bigint, $10::jsonb, $11::bigint, $12::boolean, $13::boolean, $14::int, $15::bigint, $16::text)
