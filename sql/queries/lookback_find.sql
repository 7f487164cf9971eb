-- The data about each of these ids that an operator needs to decide it: one row each, in their order; state
-- is null if there is no prepare. $1 types text[], $2 ids text[].
select i.biz_type, i.biz_id, case when d.decision is not null then 'decided'
		when p.prepared_at is not null then coalesce(o.state, 'undecided') end as state,
	p.section,
	to_char(p.prepared_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as prepared_at,
	coalesce(o.check_service, p.check_service) as check_service,
	coalesce(o.check_url, p.check_url) as check_url, coalesce(o.attempts, 0) as attempts,
	coalesce(o.pendings, 0) as pendings,
	to_char(case when o.state = 'overdue' then o.next_check
		when o.state is null and d.decision is null then p.check_at end at time zone 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as next_at,
	to_char(coalesce(o.expires_at, p.expires_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
	o.last_result, o.last_error,
	to_char(o.last_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as last_at,
	d.decision, d.source, to_char(d.decided_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as decided_at,
	d.decided_by, d.reason, t.decision as came_before
from unnest($1::text[], $2::text[]) with ordinality i (biz_type, biz_id, place)
left join lateral (select p.section, p.prepared_at, p.check_service, p.check_url, p.check_at, p.expires_at
	from outbox.lookback p
	where p.biz_type = i.biz_type and p.biz_id = i.biz_id and p.kind = 'prepare'
	order by p.prepared_at limit 1) p on true
left join lateral (select d.decision, d.source, d.decided_at, d.decided_by, d.reason
	from outbox.lookback d where d.biz_type = i.biz_type and d.biz_id = i.biz_id
		and d.prepared_at = p.prepared_at and d.kind = 'decision' limit 1) d on true
left join lateral (select t.decision from outbox.lookback t
	where t.biz_type = i.biz_type and t.biz_id = i.biz_id and t.kind = 'tombstone'
	order by t.prepared_at limit 1) t on true
left join outbox.lookback_overdue o on o.biz_type = i.biz_type and o.biz_id = i.biz_id
	and o.prepared_at = p.prepared_at
order by i.place
