-- Facts about the server, readable without any privilege in the schema.
select current_setting('server_version') as version, current_user::text as role,
	pg_is_in_recovery() as standby,
	current_setting('default_transaction_read_only') as read_only,
	current_setting('fsync') as fsync, inet_client_port() as client_port,
	(select c.oid from pg_class c where c.relnamespace = n.oid and c.relname = 'message') is not null
		as migrated,
	(select q.seqcache from pg_class c join pg_sequence q on q.seqrelid = c.oid
		where c.relnamespace = n.oid and c.relname = 'message_id_seq') as id_cache,
	exists (select from pg_roles where rolname = 'outbox_relay') as has_roles,
	(select q.seqincrement from pg_class c join pg_sequence q on q.seqrelid = c.oid
		where c.relnamespace = n.oid and c.relname = 'message_id_seq') as id_increment
from (values (1)) one (row)
left join pg_namespace n on n.nspname = 'outbox'
