-- Sets up a direct session of an owner. If its relay vanishes, the server notices within ten seconds and
-- ends the session, also while a statement waits for a lock. Settings that an older server does not
-- know are left out.
select pg_catalog.set_config(s.name, v.value, false)
from (values ('tcp_keepalives_idle', '4'), ('tcp_keepalives_interval', '2'),
	('tcp_keepalives_count', '3'), ('tcp_user_timeout', '10000'),
	('client_connection_check_interval', '2000'), ('idle_session_timeout', '0'),
	('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0')) v (name, value)
join pg_catalog.pg_settings s on s.name = v.name
