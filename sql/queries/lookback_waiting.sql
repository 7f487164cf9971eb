-- The same for undecided prepares that are not due yet, by id and type: one pass over the journal's
-- primary key, however many pages there are, with a look-up for each prepare on the way (the limits force
-- the planner to do that).
select p.biz_type, p.biz_id, 'undecided' as state, p.section,
	to_char(p.prepared_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as prepared_at,
	p.check_service, p.check_url, 0 as attempts, 0 as pendings,
	to_char(p.check_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as next_at,
	to_char(p.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
	null as last_result, null as last_error, null as last_at, p.prepared_at::text as place
from outbox.lookback p
left join lateral (select true as found from outbox.lookback d where d.biz_type = p.biz_type
	and d.biz_id = p.biz_id and d.prepared_at = p.prepared_at and d.kind = 'decision' limit 1) d on true
left join lateral (select true as found from outbox.lookback_overdue o where o.biz_type = p.biz_type
	and o.biz_id = p.biz_id and o.prepared_at = p.prepared_at limit 1) o on true
where p.kind = 'prepare' and d.found is null and o.found is null
	and (p.biz_id, p.biz_type, p.prepared_at) > ($3::text, $2::text, $4::timestamptz)
	and ($1::jsonb ->> 'section' is null or p.section = $1::jsonb ->> 'section')
	and ($1::jsonb ->> 'type' is null or p.biz_type = $1::jsonb ->> 'type')
	and ($1::jsonb ->> 'service' is null or p.check_service = $1::jsonb ->> 'service')
	and ($1::jsonb ->> 'from' is null or p.prepared_at >= ($1::jsonb ->> 'from')::timestamptz)
	and ($1::jsonb ->> 'to' is null or p.prepared_at < ($1::jsonb ->> 'to')::timestamptz)
order by p.biz_id, p.biz_type, p.prepared_at limit $5::bigint
