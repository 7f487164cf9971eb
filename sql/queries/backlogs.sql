-- The rows that each shard has not published: those not visible in its acknowledged snapshot, except those up to
-- acked_id in the first open window. Counted up to a bound; beyond it, the ids give an estimate. `more`: not all rows
-- were counted.
--
-- One question for all shards of a publisher, which has up to 64: a question for each would read the same entries of
-- the index again. Rows that no shard's snapshot can show are read once, and the others for each shard. Both are
-- counted where they are read: kept rows would be written to a temporary file.
-- Runs after backlog_begin.sql.
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
	select r.publisher, c.shard, c.rows, c.first_id, c.oldest,
		sum(c.rows) over (partition by r.publisher) >= r.most as more
	from reader r cross join lateral (
		-- an infinite time has no age
		select m.bucket * r.shards / 32768 as shard, count(*) as rows, min(m.id) as first_id,
			min(m.created_at) filter (where isfinite(m.created_at)) as oldest
		from (select o.bucket, o.id, o.created_at from outbox.message o
			where o.txid >= r.behind and o.created_at >= r.start_at order by o.txid limit r.most) m
		group by 1) c
), behind as materialized (
	select s.publisher, s.shard, c.rows, c.first_id, c.oldest
	from shard s join reader r using (publisher) cross join lateral (
		select count(*) as rows, min(u.id) as first_id,
			min(u.created_at) filter (where isfinite(u.created_at)) as oldest
		from (
			-- Rows behind acked_id, in the order of ids, so that the query does not read the published rows of a
			-- large window.
			(select m.id, m.created_at from outbox.message m
				where m.id > s.upto_id and m.txid < r.behind and not pg_visible_in_snapshot(m.txid, s.acked)
					and m.created_at >= s.start_at and m.bucket >= s.bucket_from and m.bucket < s.bucket_to
				order by m.id limit $2::bigint)
			union all
			-- Rows up to acked_id that the window does not hold. The case keeps the planner from the index of ids.
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
			limit $2::bigint) u) c
), figure as materialized (
	select s.publisher, s.shard, s.shards, least(coalesce(a.rows, 0) + b.rows, $2::bigint) as rows,
		least(a.first_id, b.first_id) as first_id, least(a.oldest, b.oldest) as oldest,
		coalesce(a.rows, 0) + b.rows >= $2::bigint
			or exists (select from ahead e where e.publisher = s.publisher and e.more) as more
	from shard s join behind b using (publisher, shard) left join ahead a using (publisher, shard)
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
