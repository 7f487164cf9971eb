-- A page of the open destinations of a shard, those with topics behind $5: so many topics, or fewer
-- that have so many partitions. The first row names no topic. No row at all: the log row that asks is not
-- here, and the server is another one than it was.
-- $1 slot text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 topic text, $6 most topics int,
-- $7 most partitions int
with here as (
	select from outbox.log l
	where l.slot = $1::text and l.shard = $2::int and l.n = $3::bigint and l.nonce = $4::bigint
)
select null::text as topic, null::int as partitions, null::bigint[] as offsets, null::boolean as open,
	null::bigint as n
from here
union all
select p.topic, p.partitions, p.offsets, p.open, p.n from (
	select d.*, sum(d.partitions) over (order by d.topic) - d.partitions as before
	from (select d.topic, d.partitions, d.offsets, d.open, d.n from outbox.destination d
		where d.slot = $1::text and d.shard = $2::int and d.open and d.topic > $5::text collate "C"
		order by d.topic limit $6::int) d) p
where p.before < $7::int and exists (select from here)
