-- oldest-program: 0.1.0
--
-- The doorbell: a transaction that writes a message rings if the relay sleeps.
--
-- All of it is advisory locks of the table's oid, so that there is no table, no dead row and no snapshot, and every
-- isolation level is the same. Each lock has two keys, the oid and one of these numbers:
--
--   1  bell     Exclusive: a relay sleeps. Shared, until its end: a transaction whose writer found the relay awake.
--               So no relay falls asleep before that transaction has ended, and none of its rows needs a ring.
--   2  ring     Exclusive, until its end: the transaction that rings. NOTIFY takes a lock of the whole cluster at
--               COMMIT, and holds it through the flush of the WAL: so one transaction rings, and the others leave.
--   3  left     Shared, until its end: a transaction that left the ringing to another one. The relay that was woken
--               up stays awake until there is none, since such a transaction may commit later than the ringer.
--   4  prepared Shared: a relay for which `doorbell = on` says that no writer calls PREPARE TRANSACTION.
--
-- No lock is ever waited for. A ring that is lost, because its transaction is rolled back or because a stranger holds one
-- of these locks, costs at most the second after which a sleeping relay looks by itself.

-- Plain statements and no exception block, because a writer pays for each of them. Two tests of lock 1: between the
-- first one and lock 3 the relay may have woken up and gone to sleep again, and then nobody rings for that sleep.
create function outbox.bell_ring() returns trigger language plpgsql as $$
begin
	if pg_catalog.pg_try_advisory_xact_lock_shared(tg_relid::pg_catalog.int4, 1) then
		return null;
	end if;

	if not pg_catalog.pg_try_advisory_xact_lock(tg_relid::pg_catalog.int4, 2) then
		-- Refused only while a relay probes it, which then finds the bell free for the second test.
		perform pg_catalog.pg_try_advisory_xact_lock_shared(tg_relid::pg_catalog.int4, 3);
		if pg_catalog.pg_try_advisory_xact_lock_shared(tg_relid::pg_catalog.int4, 1)
			or not pg_catalog.pg_try_advisory_xact_lock(tg_relid::pg_catalog.int4, 2)
		then
			return null;
		end if;
	end if;

	-- A transaction with a pending NOTIFY cannot be prepared, and a stranger may hold lock 1 where no relay sleeps.
	if pg_catalog.current_setting('max_prepared_transactions') operator(pg_catalog.<>) '0'
		and not exists (select from pg_catalog.pg_locks l
			cross join lateral pg_catalog.pg_stat_get_activity(l.pid) a
			where l.locktype operator(pg_catalog.=) 'advisory' and l.classid operator(pg_catalog.=) tg_relid
				and l.objid operator(pg_catalog.=) 4::pg_catalog.oid and l.objsubid operator(pg_catalog.=) 2 and l.granted and l.pid is not null
				and l.database operator(pg_catalog.=) (select d.oid from pg_catalog.pg_database d
					where d.datname operator(pg_catalog.=) pg_catalog.current_database())
				and pg_catalog.has_table_privilege(a.usesysid, 'outbox.log', 'INSERT'))
	then
		return null;
	end if;

	-- A full queue would fail the COMMIT.
	if pg_catalog.pg_notification_queue_usage() operator(pg_catalog.<=) 0.5 then
		perform pg_catalog.pg_notify('outbox_bell_' operator(pg_catalog.||) tg_relid::pg_catalog.text, '');
	end if;
	return null;
end $$;

-- For each statement, so that its cost does not grow with the rows.
create trigger outbox_bell after insert on outbox.message for each statement execute function outbox.bell_ring();
