-- $1 whether writers may ring although the server allows PREPARE TRANSACTION, boolean
-- What the doorbell needs to know about server and table. The locks have the table's oid as an int, which wraps
-- beyond 2^31, and a number: 1 bell, 2 ring, 3 left, 4 prepared (sql/migrations/0017_bell.sql).
select pg_is_in_recovery(),
	k.class,
	t.oid::text,
	case when g.tgenabled is null then 'the table has no trigger outbox_bell'
		when g.tgenabled = 'D' then 'the trigger outbox_bell is disabled'
		when g.tgenabled = 'R' then 'the trigger outbox_bell fires for replicas only'
		when p.allowed and not $1 then 'max_prepared_transactions is above 0'
		when p.allowed and not pg_try_advisory_lock_shared(k.class, 4)
			then 'another session holds lock 4 of the doorbell' end
from pg_class t
join pg_namespace n on n.oid = t.relnamespace
cross join lateral (select (t.oid::bigint - case when t.oid::bigint > 2147483647 then 4294967296 else 0 end)::int
	as class) k
cross join (select current_setting('max_prepared_transactions')::int > 0 as allowed) p
left join pg_trigger g on g.tgrelid = t.oid and g.tgname = 'outbox_bell' and not g.tgisinternal
where n.nspname = 'outbox' and t.relname = 'message'
