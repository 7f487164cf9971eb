-- The rows that a shard has not published: those not visible in its acknowledged snapshot, and those
-- behind acked_id in the first open window. Counted up to a bound; beyond it, the ids give an estimate.
-- Runs after backlog_begin.sql.
-- $1 publisher text, $2 shard int, $3 bound bigint
with shard as (
	select p.shard, p.shards, p.acked_id, p.ticks[1] as acked, p.ticks[2] as first_window,
		coalesce(p.start_at, '-infinity') as start_at,
		outbox.first_bucket(p.shard, p.shards) as bucket_from,
		outbox.first_bucket(p.shard + 1, p.shards) as bucket_to
	from outbox.progress p where p.publisher = $1::text and p.shard = $2::int
), unpublished as (
	select u.id, u.created_at from shard s cross join lateral (
		select m.id, m.created_at from outbox.message m
		where m.txid >= pg_snapshot_xmax(s.acked) and m.created_at >= s.start_at
			and m.bucket >= s.bucket_from and m.bucket < s.bucket_to
			and not (m.id <= s.acked_id and s.first_window is not null
				and pg_visible_in_snapshot(m.txid, s.first_window))
		union all
		-- offset 0: otherwise the planner might walk through a whole table of few large transactions
		select late.id, late.created_at from pg_snapshot_xip(s.acked) x (txid) cross join lateral (
			select m.id, m.created_at from outbox.message m
			where m.txid = x.txid and m.created_at >= s.start_at
				and m.bucket >= s.bucket_from and m.bucket < s.bucket_to
				and not (m.id <= s.acked_id and s.first_window is not null
					and pg_visible_in_snapshot(m.txid, s.first_window))
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
