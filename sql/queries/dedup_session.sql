-- What a store of dedup has to know of its session, and, when that is its own, how it behaves: locks
-- of the session go soon after the machine that holds them, and no statement goes on without somebody
-- who waits. A pooler between gives it another process than let the connection in; nothing is set then.
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
