-- A page of jobs, the newest first: requests about parked rows, replays, redrives and verifications. $1 before timestamptz, $2 before job text:
-- jobs that come behind this one, $3 most bigint, $4 job text: only this one, $5 kind text, $6 publishers jsonb: an array of names,
-- $7 is open boolean; null: any, $8 sections jsonb: an array of names; null: any.
with requests as (
	select r.id, r.asked_at, r.publisher, r.verb, r.filter, r.total, r.about
	from outbox.parked_request r
	where r.shard = 0 and r.asked_at <= $1::timestamptz
		and (r.asked_at, 'parked-' || r.id) < ($1::timestamptz, $2::text)
		and ($4::text is null or r.id = case when $4::text like 'parked-%' then substr($4::text, 8)::bigint end)
		and ($5::text is null or r.verb = $5::text) and ($6::jsonb is null or $6::jsonb ? r.publisher)
		and ($7::boolean is null or $7::boolean = (r.id = any (array(
			select o.id from outbox.parked_request o where o.ended_at is null))))
	order by r.asked_at desc, 'parked-' || r.id desc limit $3::bigint
), stored as (
	select 'replay' as kind, 'replay-' || r.id as job, r.id, r.publisher, null::text as section, r.asked_by, r.caller, r.reason,
		r.created_at, r.state, r.by_relay, r.lease_until, r.owner, r.done, r.total, true as is_exact, r.error, r.begun_at,
		r.begun_done, r.noted_at, r.filter, r.target::text as target, r.rate, null::json as result
	from outbox.replay r
	union all
	select 'redrive', 'redrive-' || r.id, r.id, null, r.section, r.asked_by, r.caller, r.reason,
		r.created_at, r.state, true, r.lease_until, r.owner, r.done, r.total, true, r.error, r.begun_at,
		r.begun_done, r.noted_at, r.filter, null, null, null
	from outbox.redrive r
	union all
	select 'verify', 'verify-' || r.id, r.id, r.publisher, null, r.asked_by, r.caller, r.reason,
		r.created_at, r.state, true, r.lease_until, r.owner, r.done, r.total, r.state = 'finished', r.error, r.begun_at,
		r.begun_done, r.noted_at, r.filter, null, null, case when r.state = 'finished' then r.result end
	from outbox.verification r
), listed as (
	select r.* from stored r
	where r.created_at <= $1::timestamptz and (r.created_at, r.job) < ($1::timestamptz, $2::text)
		and ($4::text is null or (r.id = substring($4::text from '[0-9]+$')::bigint and r.job = $4::text))
		and ($5::text is null or r.kind = $5::text) and ($7::boolean is null or $7::boolean = (r.state = 'running'))
		and ($6::jsonb is null or r.publisher is null or $6::jsonb ? r.publisher)
		and ($8::jsonb is null or r.section is null or $8::jsonb ? r.section)
	order by r.created_at desc, r.job desc limit $3::bigint
), jobs as (
	select 'parked-' || q.id as job, q.verb as kind, q.publisher, null::text as section, a.who, a.caller, a.reason, q.asked_at as at,
		case when s.is_open then 'running' when s.is_cancelled then 'cancelled' else 'finished' end as state,
		s.done, q.total, s.is_exact,
		-- without the rows that are gone: their number is known at the end, and if all were counted
		case when s.seen and s.is_exact and not s.is_open and not s.is_cancelled
			then greatest(q.total - s.done, s.changed) else s.changed end as changed,
		s.published, s.refused, s.error, s.begun_at, s.begun_done, s.noted_at,
		case when not s.is_open then s.ended_at end as ended_at, q.filter, null::text as target, null::int as rate,
		null::text as owner, null::json as result
	from requests q cross join lateral (
		select bool_or(p.ended_at is null) as is_open, bool_or(p.is_cancelled) as is_cancelled, sum(p.done)::bigint as done,
			bool_and(p.is_exact) as is_exact, sum(p.changed)::bigint as changed, sum(p.published)::bigint as published,
			sum(p.refused)::bigint as refused, bool_and(p.seen is not null) as seen,
			(array_agg(p.error order by p.refused_id) filter (where p.error is not null))[1] as error,
			max(p.begun_at) as begun_at, sum(p.begun_done)::bigint as begun_done, max(p.noted_at) as noted_at,
			max(p.ended_at) as ended_at
		from outbox.parked_request p where p.id = q.id) s
	left join outbox.audit a on a.id = q.id
	union all
	select r.job, r.kind, r.publisher, r.section, r.asked_by, r.caller, r.reason, r.created_at,
		case when r.state = 'running' and r.lease_until > clock_timestamp() then 'running'
			when r.state = 'running' and r.by_relay then 'waiting' when r.state = 'running' then 'interrupted'
			when r.state = 'stopped' and r.error is not null then 'failed'
			when r.state = 'stopped' then 'cancelled' else 'finished' end,
		r.done, r.total, r.is_exact, null, null, null, r.error, r.begun_at, r.begun_done, r.noted_at,
		case when r.state <> 'running' then r.noted_at end, r.filter, r.target, r.rate,
		case when r.state = 'running' and r.lease_until > clock_timestamp() then r.owner end, r.result
	from listed r
), timed as (
	select j.*, (j.done - j.begun_done) / nullif(extract(epoch from
		case when j.state = 'running' and j.kind in ('retry', 'skip') then clock_timestamp() else j.noted_at end
		- j.begun_at), 0) as per_second
	from jobs j
)
select t.job, t.kind, t.publisher, t.section, t.who, t.caller, t.reason,
	to_char(t.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as begun_at,
	to_char(t.noted_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as noted_at,
	to_char(t.ended_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as ended_at,
	t.state, t.done, t.total, t.is_exact, t.changed, t.published, t.refused, t.error,
	round(t.per_second::numeric, 1) as per_second,
	case when t.state = 'running' and t.per_second > 0
		then ceil(greatest(t.total - t.done - coalesce(t.changed, 0), 0) / t.per_second)::bigint end as seconds_left,
	t.filter::text as filter, t.target, t.rate, t.owner, (extract(epoch from t.at) * 1000000)::bigint as at_us,
	(t.result ->> 'clean')::boolean as clean, case when $4::text is not null then t.result end as result
from timed t order by t.at desc, t.job desc limit $3::bigint
