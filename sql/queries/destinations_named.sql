-- Reads the rows of these destinations. The first row names no topic. Fails if the caller's log row is not
-- here, because the server is another one than before.
-- $1 publisher text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 topics text[]
select null::text as topic, null::int as partitions, null::bigint[] as offsets, null::boolean as open,
	null::bigint as n
from outbox.log_guard($1::text, $2::int, $3::bigint, $4::bigint)
union all
select d.topic, d.partitions, d.offsets, d.open, d.n
from unnest($5::text[]) w (topic)
join outbox.destination d on d.publisher = $1::text and d.shard = $2::int
	and d.topic = w.topic collate "C"
