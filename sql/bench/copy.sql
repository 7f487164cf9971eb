-- All messages, as the limit reads them: by the index on id, as pages do.
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
copy (
	select m.id, m.created_at, m.event_id, m.key, m.payload from outbox.message m order by m.id
) to stdout (format binary)
