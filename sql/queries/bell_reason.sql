-- $1 the table's oid as an int
-- What keeps writers from ringing or the relay from sleeping, as far as the server tells this role: one row, or none.
-- Columns: the reason; whether messages may wait for it until a sleeping relay looks by itself. Otherwise they do not,
-- since the relay is kept awake, and polls. The age of a transaction of another role is hidden from most roles.
with message as (
	select t.oid, g.tgenabled
	from pg_class t
	join pg_namespace n on n.oid = t.relnamespace
	left join pg_trigger g on g.tgrelid = t.oid and g.tgname = 'outbox_bell' and not g.tgisinternal
	where n.nspname = 'outbox' and t.relname = 'message' and $1::int is not null
), holder as (
	select l.objid, l.mode = 'ExclusiveLock' as exclusive,
		coalesce(a.xact_start, p.prepared) < now() - interval '10 s' as is_old,
		a.application_name is not distinct from 'outbox-relay bell' as is_relay,
		case when p.gid is not null then format('prepared transaction %s (%s)', p.gid, p.owner)
			else format('session %s (%s%s)', l.pid, coalesce(a.usename, '?'),
				coalesce(', ' || nullif(a.application_name, ''), '')) end as name
	from message t
	join pg_locks l on l.locktype = 'advisory' and l.classid = t.oid and l.objsubid = 2 and l.objid in (1, 2, 3)
	left join pg_stat_activity a on a.pid = l.pid
	left join pg_locks x on l.pid is null and x.pid is null and x.locktype = 'transactionid'
		and x.virtualtransaction = l.virtualtransaction
	left join pg_prepared_xacts p on p.transaction = x.transactionid
	where l.granted and l.pid is distinct from pg_backend_pid()
		and l.database = (select d.oid from pg_database d where d.datname = current_database())
)
select r.reason, r.waits
from (
	select 1 as rank, case when tgenabled is null then 'the table has no trigger outbox_bell'
		when tgenabled = 'D' then 'the trigger outbox_bell is disabled'
		when tgenabled = 'R' then 'the trigger outbox_bell fires for replicas only' end as reason, true as waits
	from message
	union all
	select 2, format('%s has lock %s of the doorbell and is no relay', name, objid), false
	from holder where exclusive and objid <> 2 and not is_relay
	union all
	select 3, name || ' has lock 2 of the doorbell and its transaction, which rings at its end, is open', true
	from holder where objid = 2 and exclusive
	union all
	select 4, 'the queue of NOTIFY is more than half full: a session that listens is idle in a transaction', true
	where pg_notification_queue_usage() > 0.5
	union all
	select 5, format('%s has lock %s of the doorbell and its transaction, which writes messages, is open', name, objid),
		false
	from holder where not exclusive and is_old) r
where r.reason is not null
order by r.rank
limit 1
