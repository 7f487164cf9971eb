-- Facts about its session for a dedup store. If the session is direct, this also sets it up: its locks
-- end soon after the client's machine has vanished, and no statement runs on without a client. With a
-- pooler in between, the server process differs from the one that accepted the connection; then nothing
-- is set.
-- $1 process int, $2 timeout text, in milliseconds
-- Any search_path: the session may be that of a query of the business.
select pg_catalog.pg_backend_pid() operator(pg_catalog.=) $1::int as own,
	pg_catalog.pg_is_in_recovery() as standby,
	case when pg_catalog.pg_backend_pid() operator(pg_catalog.=) $1::int then array[
		pg_catalog.set_config('statement_timeout', $2::pg_catalog.text, false),
		pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
		pg_catalog.set_config('idle_in_transaction_session_timeout', '0', false),
		pg_catalog.set_config('tcp_keepalives_idle', '5', false),
		pg_catalog.set_config('tcp_keepalives_interval', '2', false),
		pg_catalog.set_config('tcp_keepalives_count', '3', false),
		pg_catalog.set_config('tcp_user_timeout', '10000', false)] end as settings
