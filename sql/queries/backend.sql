-- The server process of this session. With a pooler in between it differs from the process that accepted
-- the connection.
select pg_backend_pid()
