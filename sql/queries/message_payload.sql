-- Payload and headers of a message, which only some readers may see; from its copies once its partition was dropped.
-- $1 id bigint, $2 created at timestamptz
select encode(m.payload, 'hex') as payload, m.headers from (
	select outbox.published_bytes(m.payload, m.payload_bytes) as payload, m.headers
	from outbox.message m where m.id = $1::bigint and m.created_at = $2::timestamptz
	union all
	select p.payload, p.headers from outbox.parked p
	where (p.id = $1::bigint or p.was_id = $1::bigint and p.was_id is not null) and p.created_at = $2::timestamptz
	union all
	select s.payload, s.headers from outbox.scheduled s
	where (s.id = $1::bigint or s.was_id = $1::bigint and s.was_id is not null) and s.created_at = $2::timestamptz
) m limit 1
