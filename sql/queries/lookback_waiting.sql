-- A page of undecided prepares that are not due yet, by id and type, with the columns of lookback_list.sql. It looks at
-- the next $6 prepares in the order of the journal's primary key. Its last row is the last prepare that was looked at,
-- even if that one is not meant: the next page begins behind it. No row: the journal has no further prepare.
-- The limits keep the planner from reading the whole journal for a question about each prepare.
-- $1 chosen jsonb, $2 after type text, $3 after id text, $4 after prepared_at timestamptz, $5 most rows bigint,
-- $6 most prepares looked at bigint
with looked as (
	select p.biz_type, p.biz_id, p.prepared_at, p.section, p.check_service, p.check_url, p.check_at, p.expires_at,
		row_number() over (order by p.biz_id, p.biz_type, p.prepared_at) as n
	from outbox.lookback p
	-- nobody was called about them, so they have no error
	where p.kind = 'prepare' and $1::jsonb ->> 'error' is null
		and (p.biz_id, p.biz_type, p.prepared_at) > ($3::text, $2::text, $4::timestamptz)
	order by p.biz_id, p.biz_type, p.prepared_at limit $6::bigint
), waiting as (
	select p.*, d.found is null and o.found is null and m.meant as meant
	from looked p
	cross join lateral (select ($1::jsonb ->> 'section' is null or p.section = $1::jsonb ->> 'section')
		and ($1::jsonb ->> 'type' is null or p.biz_type = $1::jsonb ->> 'type')
		and ($1::jsonb ->> 'service' is null or p.check_service = $1::jsonb ->> 'service')
		and ($1::jsonb ->> 'from' is null or p.prepared_at >= ($1::jsonb ->> 'from')::timestamptz)
		and ($1::jsonb ->> 'to' is null or p.prepared_at < ($1::jsonb ->> 'to')::timestamptz) as meant) m
	left join lateral (select true as found from outbox.lookback d where m.meant and d.biz_type = p.biz_type
		and d.biz_id = p.biz_id and d.prepared_at = p.prepared_at and d.kind = 'decision' limit 1) d on true
	left join lateral (select true as found from outbox.lookback_overdue o where m.meant and d.found is null
		and o.biz_type = p.biz_type and o.biz_id = p.biz_id and o.prepared_at = p.prepared_at limit 1) o on true
)
select w.biz_type, w.biz_id, 'undecided' as state, w.section,
	to_char(w.prepared_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as prepared_at,
	w.check_service, w.check_url, 0 as attempts, 0 as pendings,
	to_char(w.check_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as next_at,
	to_char(w.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
	null as last_result, null as last_error, null as last_at,
	to_char(w.prepared_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as place,
	null as since, false as claimed, w.meant
from waiting w where w.meant or w.n = (select max(l.n) from looked l)
order by w.n limit $5::bigint
