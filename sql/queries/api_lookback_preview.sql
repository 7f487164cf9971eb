-- Counts the chosen overdue and parked ids, up to $2, with a sample of the $3 that have waited longest. at_us is the
-- time of the count. $1 chosen jsonb (outbox.lookback_is), $2 most bigint, $3 sample bigint.
with found as materialized (
	select o.section, o.biz_type, o.biz_id, o.prepared_at, o.state, o.overdue_at, o.attempts, o.last_error
	from outbox.lookback_overdue o where outbox.lookback_is(o, $1::jsonb) limit $2::bigint + 1
), sample as (
	select row_number() over (order by f.overdue_at, f.biz_type, f.biz_id) as n,
		jsonb_build_object('biz_type', f.biz_type, 'biz_id', f.biz_id, 'section', f.section,
			'prepared_at', f.prepared_at, 'state', f.state, 'since', f.overdue_at,
			'attempts', f.attempts, 'last_error', f.last_error) as shown
	from found f order by f.overdue_at, f.biz_type, f.biz_id limit $3::bigint
)
select jsonb_build_object(
	'at_us', (extract(epoch from statement_timestamp()) * 1000000)::bigint,
	'count', least(count(*), $2::bigint)::text, 'exact', count(*) <= $2::bigint,
	'states', jsonb_build_object('overdue', (count(*) filter (where f.state = 'overdue'))::text,
		'parked', (count(*) filter (where f.state = 'parked'))::text),
	'sample', (select coalesce(jsonb_agg(s.shown order by s.n), '[]') from sample s))::text
from found f
