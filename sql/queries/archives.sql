-- The archives of a database, oldest first.
-- $1 table text, "" for all
select a.id, a.of_table, a.name, a.state, a.leaf, coalesce(a.host, ''), coalesce(a.folder, ''), coalesce(a.file, ''),
	(extract(epoch from a.from_at) * 1000000)::bigint as from_us,
	(extract(epoch from a.to_at) * 1000000)::bigint as to_us,
	a.row_count, a.bytes, a.file_bytes, coalesce(a.checksum, '')
from outbox.archive a
where $1::text in ('', a.of_table)
order by a.of_table desc, a.from_at, a.id
