-- The server notices a vanished host within 10 s, and so frees the doorbell that the host held.
select set_config('tcp_keepalives_idle', '4', false), set_config('tcp_keepalives_interval', '2', false),
	set_config('tcp_keepalives_count', '3', false)
