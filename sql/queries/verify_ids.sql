-- Rows by id: whether they lie in the range that is judged, and whether an operator had them skipped.
-- $1 ids bigint[], $2 from timestamptz, $3 to timestamptz, $4 slot text
select m.id, m.event_id, m.topic, m.key, m.partition,
	m.created_at >= $2::timestamptz and (m.created_at < $3::timestamptz or $3::timestamptz = 'infinity')
		as in_range,
	m.id in (select skipped.id::bigint
		from outbox.audit a cross join jsonb_array_elements_text(a.target -> 'ids') skipped (id)
		where a.slot = $4::text and a.verb = 'skip') as skipped
from outbox.message m where m.id = any ($1::bigint[])
