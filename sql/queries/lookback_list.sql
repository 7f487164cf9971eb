-- A page of overdue and parked ids, by type and id. $1 chosen jsonb (outbox.lookback_is), $2 after type text,
-- $3 after id text, $4 after prepared_at timestamptz, $5 most bigint. place is $4 of the next page.
select o.biz_type, o.biz_id, o.state, o.section,
	to_char(o.prepared_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as prepared_at,
	o.check_service, o.check_url, o.attempts, o.pendings,
	to_char(case when o.state = 'overdue' then o.next_check end at time zone 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as next_at,
	to_char(o.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
	o.last_result, o.last_error,
	to_char(o.last_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as last_at,
	to_char(o.prepared_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as place,
	to_char(o.overdue_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as since, o.claim is not null as claimed
from outbox.lookback_overdue o
where (o.biz_type, o.biz_id, o.prepared_at) > ($2::text, $3::text, $4::timestamptz)
	and outbox.lookback_is(o, $1::jsonb)
order by o.biz_type, o.biz_id, o.prepared_at limit $5::bigint
