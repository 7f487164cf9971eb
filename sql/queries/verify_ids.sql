-- Rows by id: whether they lie in the range that is judged, and whether an operator had them skipped. Of
-- a request for many rows the audit names the first and the last, and by what they were chosen.
-- $1 ids bigint[], $2 from timestamptz, $3 to timestamptz, $4 slot text
select m.id, m.event_id, m.topic, m.key, m.partition,
	m.created_at >= $2::timestamptz and (m.created_at < $3::timestamptz or $3::timestamptz = 'infinity')
		as in_range,
	exists (select from outbox.audit a where a.slot = $4::text and a.verb = 'skip'
		and (a.target -> 'ids' @> to_jsonb(m.id)
			or m.id between (a.target ->> 'first_id')::bigint and (a.target ->> 'last_id')::bigint
				and outbox.parked_is(m.id, m.topic, m.key, '', now(), '', (a.target -> 'filter')
					- array['error', 'from', 'to', 'state']))) as skipped
from outbox.message m where m.id = any ($1::bigint[])
