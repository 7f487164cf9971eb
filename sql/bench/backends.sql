-- The sessions of relays in this database.
select a.pid from pg_stat_activity a
where a.datname = current_database() and a.application_name like 'outbox-relay _%'
