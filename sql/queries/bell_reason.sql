-- $1 the table's oid as an int
-- Why nobody rang for a message, as far as the server can tell; no row, or null: it cannot.
select case when g.tgenabled is null then 'the table has no trigger outbox_bell'
	when g.tgenabled = 'D' then 'the trigger outbox_bell is disabled'
	when g.tgenabled = 'R' then 'the trigger outbox_bell fires for replicas only'
	when h.pid is not null then format('session %s (%s%s) has lock %s of the doorbell %s', h.pid,
		coalesce(h.usename, '?'), coalesce(', ' || nullif(h.application_name, ''), ''), h.objid,
		case h.objid when 2 then 'and its transaction, which rings at its end, is open'
			else 'and is no relay' end)
	when pg_notification_queue_usage() > 0.5 then 'the queue of NOTIFY is more than half full' end
from pg_class t
join pg_namespace n on n.oid = t.relnamespace
left join pg_trigger g on g.tgrelid = t.oid and g.tgname = 'outbox_bell' and not g.tgisinternal
left join lateral (
	select l.pid, l.objid, a.usename, a.application_name
	from pg_locks l left join pg_stat_activity a on a.pid = l.pid
	where l.locktype = 'advisory' and l.classid = t.oid and l.objsubid = 2 and l.objid in (1, 2)
		and l.mode = 'ExclusiveLock' and l.granted and l.pid <> pg_backend_pid()
		and (l.objid = 2 or a.application_name is distinct from 'outbox-relay bell')
		and l.database = (select d.oid from pg_database d where d.datname = current_database())
	order by l.objid desc limit 1) h on true
where n.nspname = 'outbox' and t.relname = 'message' and $1::int is not null
