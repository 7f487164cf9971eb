-- How many of the chosen are in each state. $1 chosen jsonb (outbox.lookback_is), $2 undecided boolean:
-- also count prepares that are not due yet.
select o.state, count(*) from outbox.lookback_overdue o
where outbox.lookback_is(o, $1::jsonb) group by o.state
union all
select 'undecided', count(*) from outbox.lookback p
where $2::boolean and p.kind = 'prepare'
	and ($1::jsonb ->> 'section' is null or p.section = $1::jsonb ->> 'section')
	and ($1::jsonb ->> 'type' is null or p.biz_type = $1::jsonb ->> 'type')
	and ($1::jsonb ->> 'service' is null or p.check_service = $1::jsonb ->> 'service')
	and ($1::jsonb ->> 'from' is null or p.prepared_at >= ($1::jsonb ->> 'from')::timestamptz)
	and ($1::jsonb ->> 'to' is null or p.prepared_at < ($1::jsonb ->> 'to')::timestamptz)
	and not exists (select from outbox.lookback d where d.biz_type = p.biz_type and d.biz_id = p.biz_id
		and d.prepared_at = p.prepared_at and d.kind = 'decision')
	and not exists (select from outbox.lookback_overdue o where o.biz_type = p.biz_type
		and o.biz_id = p.biz_id and o.prepared_at = p.prepared_at)
