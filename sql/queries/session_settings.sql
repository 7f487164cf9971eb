-- Settings that every session of ours depends on, instead of the defaults of database and role. :process is the
-- process that let the connection in. Where another one serves, there is a pooler between, whose next
-- transaction may run in another session: the settings then hold for this transaction only. A setting that this
-- server does not have is left out. Runs before search_path is set, so every name is qualified.
-- search_path: nobody can plant a function, an operator or a type there. row_security: a policy that hides rows
-- is an error, instead of rows that seem to be published. default_transaction_read_only is left out: an
-- operator, or a managed server whose disk is full, sets it to forbid every write.
-- Any search_path: the session has not been set up.
select pg_catalog.set_config(s.name, s.value, p.pooled), p.pooled
from (select pg_catalog.pg_backend_pid() operator(pg_catalog.<>) :process as pooled offset 0) p
cross join (values
	('search_path', 'pg_catalog, pg_temp'),
	('row_security', 'off'),
	('standard_conforming_strings', 'on'), ('escape_string_warning', 'off'),
	('backslash_quote', 'safe_encoding'), ('array_nulls', 'on'), ('transform_null_equals', 'off'),
	('quote_all_identifiers', 'off'), ('check_function_bodies', 'on'),
	('bytea_output', 'hex'), ('extra_float_digits', '1'), ('DateStyle', 'ISO, YMD'),
	('IntervalStyle', 'postgres'), ('TimeZone', 'UTC'), ('lc_numeric', 'C'),
	('default_transaction_isolation', 'read committed'), ('default_transaction_deferrable', 'off'),
	('statement_timeout', '0'), ('lock_timeout', '0'), ('transaction_timeout', '0'),
	('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0')) s (name, value)
where pg_catalog.current_setting(s.name, true) is not null
