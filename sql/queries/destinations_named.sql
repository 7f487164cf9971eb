-- What is known of these destinations. The first row names no topic. No row at all: the log row that
-- asks is not here, and the server is another one than it was.
-- $1 slot text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 topics text[]
with here as (
	select from outbox.log l
	where l.slot = $1::text and l.shard = $2::int and l.n = $3::bigint and l.nonce = $4::bigint
)
select null::text as topic, null::int as partitions, null::bigint[] as offsets, null::boolean as open,
	null::bigint as n
from here
union all
select d.topic, d.partitions, d.offsets, d.open, d.n
from unnest($5::text[]) w (topic)
join outbox.destination d on d.slot = $1::text and d.shard = $2::int
	and d.topic = w.topic collate "C"
where exists (select from here)
