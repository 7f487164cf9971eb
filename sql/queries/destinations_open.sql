-- A page of the open destinations of a shard, with topics after $5: up to $6 topics, or fewer with $7
-- partitions together. The first row names no topic. Fails if the caller's log row is not here, because
-- the server is another one than before.
-- $1 publisher text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 topic text, $6 most topics int,
-- $7 most partitions int
select null::text as topic, null::int as partitions, null::bigint[] as offsets, null::boolean as open,
	null::bigint as n
from outbox.log_guard($1::text, $2::int, $3::bigint, $4::bigint)
union all
select p.topic, p.partitions, p.offsets, p.open, p.n from (
	select d.*, sum(d.partitions) over (order by d.topic) - d.partitions as before
	from (select d.topic, d.partitions, d.offsets, d.open, d.n from outbox.destination d
		where d.publisher = $1::text and d.shard = $2::int and d.open and d.topic > $5::text collate "C"
		order by d.topic limit $6::int) d) p
where p.before < $7::int
