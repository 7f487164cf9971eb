-- Whether a relay sleeps.
select exists (select from pg_locks where locktype = 'advisory' and classid = 'outbox.message'::regclass and objid = 1
	and objsubid = 2 and mode = 'ExclusiveLock' and granted
	and database = (select oid from pg_database where datname = current_database()))
