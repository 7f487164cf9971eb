-- All messages for the limit, read by the index on id, as pages are.
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
copy (
	select m.id, m.created_at, m.event_id, outbox.published_bytes(m.key, m.key_bytes),
		outbox.published_bytes(m.payload, m.payload_bytes)
	from outbox.message m order by m.id
) to stdout (format binary)
