-- A relay that sleeps, until the session ends: the locks of migrations/0017_bell.sql, and the channel.
do $$ begin execute format('listen outbox_bell_%s', 'outbox.message'::regclass::oid); end $$;
select pg_advisory_lock('outbox.message'::regclass::oid::int4, 1),
	pg_advisory_lock_shared('outbox.message'::regclass::oid::int4, 4);
