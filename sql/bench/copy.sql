-- All messages for the limit, read by the index on id, as pages are. The bench writes keys and payloads as text.
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
copy (
	select m.created_at, m.key, m.payload, m.headers, m.id, m.event_id
	from outbox.message m order by m.id
) to stdout (format binary)
