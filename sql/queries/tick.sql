-- $1 publisher text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 shards int, $6 new nonce bigint,
-- $7 lease in ms bigint, $8 closed int, $9 acked id bigint, $10 destinations jsonb,
-- $11 new epoch bigint or null, $12 may open boolean, $13 must write boolean, $14 max rows int,
-- $15 max bytes bigint, $16 the snapshot last found empty, text or null, $17 rows kept back jsonb or null,
-- $18 may list boolean, $19 batch int, $20 deaths int[] or null, $21 blind boolean, $22 fold to bigint or null
select *
from outbox.tick($1, $2, $5, $3, $4, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
	$20, $21, $22)
