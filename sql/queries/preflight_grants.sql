-- The privileges that the role of this connection lacks to run the relay, each with the statement that
-- grants it.
with schema as (
	select n.oid from pg_namespace n where n.nspname = 'outbox'
), relation (name, privilege) as (values
	('message', 'select'), ('message_default', 'select'),
	('lookback', 'select'), ('lookback', 'insert'), ('lookback_default', 'select'),
	('processed', 'select'), ('processed_default', 'select'),
	('unique_ledger', 'select'), ('unique_ledger_default', 'select'),
	('lookback_log', 'select'), ('lookback_log', 'insert'), ('lookback_log', 'delete'),
	('lookback_overdue', 'select'), ('lookback_overdue', 'insert'), ('lookback_overdue', 'update'),
	('lookback_overdue', 'delete'), ('lookback_conflict', 'select'), ('lookback_conflict', 'insert'),
	('lookback_conflict', 'delete'),
	('publisher', 'select'), ('log', 'select'), ('log', 'insert'), ('progress', 'select'),
	('destination', 'select'), ('destination', 'insert'), ('destination', 'update'),
	('destination', 'delete'),
	('migration', 'select')
), lacking_relation as (
	select r.name, r.privilege from relation r
	join pg_class c on c.relname = r.name and c.relnamespace = (select oid from schema)
	where not has_table_privilege(c.oid, r.privilege)
), lacking_function as (
	select p.proname from pg_proc p
	where p.pronamespace = (select oid from schema) and not has_function_privilege(p.oid, 'execute')
		and p.proname in ('take', 'tick', 'look', 'renew', 'timeline', 'system_identifier', 'has_rows_of_the_future',
			'log_was_carried', 'destinations_fold',
			'require_read_committed', 'xid_after', 'window_bounds', 'window_guard', 'log_guard', 'shard_of',
			'bucket_of', 'bucket_shard', 'first_bucket',
			'published_bytes', 'shard_numbers', 'partitioned', 'partitions', 'partition_time_column',
			'partition_default_rows', 'partition_floor', 'partition_make',
			'partition_holder', 'partition_empty', 'partition_drop', 'partition_detach',
			'partition_rehome', 'log_partitions', 'log_partitions_due', 'log_partition_rows',
			'log_partition_is_over', 'log_partition_make', 'log_partition_drop', 'lookback_holder',
			'processed_holder', 'unique_ledger_holder',
			'lookback_progress', 'lookback_known', 'lookback_decide', 'lookback_promote',
			'lookback_apply', 'lookback_claim', 'lookback_settle', 'lookback_is',
			'lookback_operate', 'lookback_carry_out', 'lookback_tidy', 'job_tidy', 'upkeep_begin', 'upkeep_holders')
)
select 'USAGE on schema outbox' as lacking,
	format('grant usage on schema outbox to %I', current_user) as cure
from schema where not has_schema_privilege(schema.oid, 'usage')
union all
select upper(privilege) || ' on outbox.' || name,
	format('grant %s on outbox.%I to %I', privilege, name, current_user)
from lacking_relation
union all
select format('EXECUTE on %s functions of schema outbox (%s ...)', count(*), min(proname)),
	format('grant execute on all functions in schema outbox to %I', current_user)
from lacking_function having count(*) > 0
