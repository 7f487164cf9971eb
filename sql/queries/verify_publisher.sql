-- The published rows according to a publisher's log: for each shard, in order, the acknowledged snapshot,
-- that of the first open window (or the same again) and the id up to which this window is published. Also
-- where the publisher starts, the smallest id in the table, the publisher's identity, and since when it has
-- that.
-- $1 publisher text
select min(p.shards) as shards, array_agg(p.ticks[1] order by p.shard)::text as acked,
	array_agg(coalesce(p.ticks[2], p.ticks[1]) order by p.shard)::text as windows,
	array_agg(p.acked_id order by p.shard)::text as acked_ids, min(p.start::text) as start,
	coalesce(min(p.start_at), '-infinity')::text as start_at,
	coalesce((select min(m.id) from outbox.message m), 9223372036854775807) as first_id,
	min(s.identity::text) as identity, coalesce(min(s.identity_since), '-infinity')::text as identity_since
from outbox.progress p join outbox.publisher s on s.name = p.publisher
where p.publisher = $1::text and p.n is not null
having count(*) > 0
