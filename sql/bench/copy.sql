-- All messages for the limit, read by the index on id, as pages are.
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
copy (
	select m.id, m.created_at, m.event_id, coalesce(m.key_bytes, convert_to(m.key, 'UTF8')),
		coalesce(m.payload_bytes, convert_to(m.payload, 'UTF8'))
	from outbox.message m order by m.id
) to stdout (format binary)
