-- The chosen ids by state: the overdue and the parked ones among the first $2 rows in the order of types and ids, and
-- the prepares that are not due yet among the first $3 of the journal in the order of ids. Parked rows, which are few,
-- have an index of their own. more: there are that many rows.
-- $1 chosen jsonb (outbox.lookback_is; the state may also be undecided), $2 most rows looked at bigint,
-- $3 most prepares of the journal bigint (0: none)
select 'overdue' as state, count(*) filter (where l.meant) as ids, count(*) >= $2::bigint as more
from (
	select o.state = 'overdue' and outbox.lookback_is(o, $1::jsonb) as meant from outbox.lookback_overdue o
	where coalesce($1::jsonb ->> 'state', 'overdue') = 'overdue'
		and ($1::jsonb ->> 'type' is null or o.biz_type = $1::jsonb ->> 'type')
	order by o.biz_type, o.biz_id, o.prepared_at limit $2::bigint) l
union all
select 'parked', count(*) filter (where l.meant), count(*) >= $2::bigint
from (
	select outbox.lookback_is(o, $1::jsonb) as meant from outbox.lookback_overdue o
	where o.state = 'parked' and coalesce($1::jsonb ->> 'state', 'parked') = 'parked'
		and ($1::jsonb ->> 'type' is null or o.biz_type = $1::jsonb ->> 'type')
	order by o.biz_type, o.biz_id, o.prepared_at limit $2::bigint) l
union all
-- The limits keep the planner from reading the whole journal for a question about each prepare.
select 'undecided', count(*) filter (where l.meant and d.found is null and o.found is null),
	coalesce(count(*) >= nullif($3::bigint, 0), false)
from (
	select p.biz_type, p.biz_id, p.prepared_at, ($1::jsonb ->> 'section' is null or p.section = $1::jsonb ->> 'section')
		and ($1::jsonb ->> 'type' is null or p.biz_type = $1::jsonb ->> 'type')
		and ($1::jsonb ->> 'service' is null or p.check_service = $1::jsonb ->> 'service')
		and ($1::jsonb ->> 'from' is null or p.prepared_at >= ($1::jsonb ->> 'from')::timestamptz)
		and ($1::jsonb ->> 'to' is null or p.prepared_at < ($1::jsonb ->> 'to')::timestamptz) as meant
	-- nobody was called about them, so they have no error
	from outbox.lookback p where p.kind = 'prepare' and $1::jsonb ->> 'error' is null
	order by p.biz_id, p.biz_type, p.prepared_at limit $3::bigint) l
left join lateral (select true as found from outbox.lookback d where l.meant and d.biz_type = l.biz_type
	and d.biz_id = l.biz_id and d.prepared_at = l.prepared_at and d.kind = 'decision' limit 1) d on true
left join lateral (select true as found from outbox.lookback_overdue o where l.meant and d.found is null
	and o.biz_type = l.biz_type and o.biz_id = l.biz_id and o.prepared_at = l.prepared_at limit 1) o on true
