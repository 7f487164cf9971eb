-- The same, without what only the relay's headers need.
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
copy (select m.created_at, m.key, m.payload, m.headers from outbox.message m order by m.id) to stdout (format binary)
