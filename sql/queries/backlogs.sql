-- backlog.sql of all shards of the publishers at once: a publisher has up to 64, and a question for each would read the
-- same entries of the index again. Rows that no shard's snapshot can show are read once for all shards of a
-- publisher, and each shard reads the others as in backlog.sql.
-- `more`: not all rows were counted. Runs after backlog_begin.sql.
-- $1 publisher text (null: all), $2 bound bigint, of each shard, and four times that of a publisher
with shard as materialized (
	select p.publisher, p.shard, p.shards, coalesce(p.start_at, '-infinity') as start_at, p.ticks[1] as acked,
		-- Published are the rows that this snapshot shows, up to this id; null: all of them.
		coalesce(p.ticks[2], p.ticks[1]) as upto,
		case when p.ticks[2] is not null then p.acked_id end as upto_id,
		outbox.first_bucket(p.shard, p.shards) as bucket_from,
		outbox.first_bucket(p.shard + 1, p.shards) as bucket_to
	from outbox.progress p where p.n is not null and p.publisher = coalesce($1::text, p.publisher)
), reader as materialized (
	-- max(xid8) is newer than PostgreSQL 13
	select s.publisher, s.shards, s.start_at, $2::bigint * least(s.shards, 4) as most,
		(array_agg(pg_snapshot_xmax(s.upto) order by pg_snapshot_xmax(s.upto) desc))[1] as behind
	from shard s group by s.publisher, s.shards, s.start_at
), ahead as materialized (
	select r.publisher, r.shards, m.bucket * r.shards / 32768 as shard, m.id, m.created_at
	from reader r cross join lateral (
		select o.bucket, o.id, o.created_at from outbox.message o
		where o.txid >= r.behind and o.created_at >= r.start_at order by o.txid limit r.most) m
), seen as materialized (
	select a.publisher, a.shards, count(*) as rows from ahead a group by a.publisher, a.shards
), unpublished as (
	select a.publisher, a.shard, a.id, a.created_at from ahead a join shard s using (publisher, shards, shard)
	union all
	select s.publisher, s.shard, u.id, u.created_at
	from shard s join reader r using (publisher, shards, start_at) cross join lateral (
		(select m.id, m.created_at from outbox.message m
			where m.id > s.upto_id and m.txid < r.behind and not pg_visible_in_snapshot(m.txid, s.acked)
				and m.created_at >= s.start_at and m.bucket >= s.bucket_from and m.bucket < s.bucket_to
			order by m.id limit $2::bigint)
		union all
		-- The case keeps the planner from the index of ids.
		select m.id, m.created_at from outbox.message m
		where m.txid >= pg_snapshot_xmax(s.upto) and m.txid < r.behind
			and case when m.id > s.upto_id then false else true end
			and m.created_at >= s.start_at and m.bucket >= s.bucket_from and m.bucket < s.bucket_to
		union all
		-- offset 0: otherwise the planner might walk through a whole table of few large transactions
		select late.id, late.created_at from pg_snapshot_xip(s.upto) x (txid) cross join lateral (
			select m.id, m.created_at from outbox.message m
			where m.txid = x.txid and case when m.id > s.upto_id then false else true end
				and m.created_at >= s.start_at and m.bucket >= s.bucket_from and m.bucket < s.bucket_to
			offset 0) late
		limit $2::bigint) u
), counted as materialized (
	-- an infinite time has no age
	select u.publisher, u.shard, least(count(*), $2::bigint) as rows, min(u.id) as first_id,
		min(u.created_at) filter (where isfinite(u.created_at)) as oldest
	from unpublished u group by u.publisher, u.shard
), figure as materialized (
	select s.publisher, s.shard, s.shards, coalesce(c.rows, 0) as rows, c.first_id, c.oldest,
		coalesce(c.rows, 0) >= $2::bigint or coalesce(e.rows, 0) >= r.most as more
	from shard s join reader r using (publisher, shards, start_at) left join seen e using (publisher, shards)
	left join counted c using (publisher, shard)
), newest as materialized (
	select coalesce((select m.id from outbox.message m order by m.id desc limit 1), 0) as id
)
select f.rows, f.more,
	case when f.more then greatest(f.rows, (n.id - f.first_id + 1) / f.shards) else f.rows end as estimated,
	case when f.oldest is not null then greatest(0, extract(epoch from clock_timestamp() - f.oldest) * 1000)::bigint
		-- the first row may be one of those that were not counted
		when f.more then -1 else 0 end as oldest_age_ms,
	n.id as newest_id, f.publisher, f.shard
from figure f cross join newest n
