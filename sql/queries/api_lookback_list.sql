-- Overdue and parked ids as JSON, the longest waiting ones first. $1 chosen jsonb (outbox.lookback_is),
-- $2 most bigint; "more": there are further ids.
with found as materialized (
	select row_number() over (order by o.overdue_at, o.biz_type, o.biz_id) as n,
		jsonb_build_object('biz_type', o.biz_type, 'biz_id', o.biz_id, 'section', o.section,
			'prepared_at', o.prepared_at, 'state', o.state, 'since', o.overdue_at,
			'attempts', o.attempts, 'pendings', o.pendings, 'next_check', o.next_check,
			'claimed', o.claim is not null, 'check_service', o.check_service,
			'check_url', regexp_replace(o.check_url, '\?.*', '?...'),
			'expires_at', o.expires_at, 'last_result', o.last_result,
			'last_error', o.last_error, 'last_at', o.last_at) as shown
	from outbox.lookback_overdue o where outbox.lookback_is(o, $1::jsonb)
	order by o.overdue_at, o.biz_type, o.biz_id limit $2::bigint + 1
)
select jsonb_build_object(
	'rows', coalesce(jsonb_agg(f.shown order by f.n) filter (where f.n <= $2::bigint), '[]'),
	'more', count(*) > $2::bigint)::text
from found f
