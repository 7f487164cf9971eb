-- Rows by id: whether they are in the range that is verified, and whether an operator had them skipped.
-- $1 ids bigint[], $2 from timestamptz, $3 to timestamptz, $4 publisher text
with found as (
	select m.id, m.created_at, m.event_id, m.topic, outbox.published_bytes(m.key, m.key_bytes) as key, m.partition
	from outbox.message m where m.id = any ($1::bigint[])
		and not exists (select from outbox.renumbered n
			where n.publisher = $4::text and n.was_id = m.id and n.event_id = m.event_id)
	union all
	select n.id, m.created_at, m.event_id, m.topic, outbox.published_bytes(m.key, m.key_bytes), m.partition
	from outbox.renumbered n join outbox.message m on m.id = n.was_id and m.created_at = n.created_at
	where n.publisher = $4::text and n.id = any ($1::bigint[])
)
select m.id, m.event_id, m.topic, m.key, m.partition,
	m.created_at >= $2::timestamptz and (m.created_at < $3::timestamptz or $3::timestamptz = 'infinity')
		as in_range,
	m.id in (select unnest(k.ids) from outbox.skipped k where k.publisher = $4::text) as skipped
from found m
