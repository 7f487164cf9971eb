-- The rows that a shard has not published: those not visible in its acknowledged snapshot, except those up to
-- acked_id in the first open window. Counted up to a bound; beyond it, the ids give an estimate.
-- Runs after backlog_begin.sql.
-- $1 publisher text, $2 shard int, $3 bound bigint
with shard as (
	select p.shard, p.shards, coalesce(p.start_at, '-infinity') as start_at, p.ticks[1] as acked,
		-- Published are the rows that this snapshot shows, up to this id; null: all of them.
		coalesce(p.ticks[2], p.ticks[1]) as upto,
		case when p.ticks[2] is not null then p.acked_id end as upto_id,
		outbox.first_bucket(p.shard, p.shards) as bucket_from,
		outbox.first_bucket(p.shard + 1, p.shards) as bucket_to
	from outbox.progress p where p.publisher = $1::text and p.shard = $2::int
), unpublished as (
	select u.id, u.created_at from shard s cross join lateral (
		-- Rows behind acked_id, in the order of ids, so that the query does not read the published rows of a large window.
		(select m.id, m.created_at from outbox.message m
			where m.id > s.upto_id and not pg_visible_in_snapshot(m.txid, s.acked)
				and m.created_at >= s.start_at and m.bucket >= s.bucket_from and m.bucket < s.bucket_to
			order by m.id limit $3::bigint)
		union all
		-- Rows up to acked_id that the window does not hold. The case keeps the planner from the index of ids.
		select m.id, m.created_at from outbox.message m
		where m.txid >= pg_snapshot_xmax(s.upto) and case when m.id > s.upto_id then false else true end
			and m.created_at >= s.start_at and m.bucket >= s.bucket_from and m.bucket < s.bucket_to
		union all
		-- offset 0: otherwise the planner might walk through a whole table of few large transactions
		select late.id, late.created_at from pg_snapshot_xip(s.upto) x (txid) cross join lateral (
			select m.id, m.created_at from outbox.message m
			where m.txid = x.txid and case when m.id > s.upto_id then false else true end
				and m.created_at >= s.start_at and m.bucket >= s.bucket_from and m.bucket < s.bucket_to
			offset 0) late
	) u limit $3::bigint
), counted as (
	-- an infinite time has no age
	select count(*) as rows, min(id) as first_id,
		min(created_at) filter (where isfinite(created_at)) as oldest
	from unpublished
)
select c.rows, c.rows >= $3::bigint as more,
	case when c.rows < $3::bigint then c.rows
		else greatest(c.rows, (n.id - c.first_id + 1) / s.shards) end as estimated,
	case when c.oldest is null then 0
		else greatest(0, extract(epoch from clock_timestamp() - c.oldest) * 1000)::bigint
		end as oldest_age_ms,
	coalesce(n.id, 0) as newest_id
from counted c cross join shard s
left join lateral (select m.id from outbox.message m order by m.id desc limit 1) n on true
