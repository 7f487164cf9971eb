-- The table of this schema that another session locks exclusively, or waits for; a partitioned one before its
-- partitions.
select c.relname from pg_locks l join pg_class c on c.oid = l.relation
where l.database = (select d.oid from pg_database d where d.datname = current_database())
	and l.mode = 'AccessExclusiveLock' and l.pid <> pg_backend_pid()
	and c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'p')
order by c.relkind = 'p' desc, c.relname limit 1
