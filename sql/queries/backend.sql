-- The process that serves: another one than let the connection in, when there is a pooler between.
select pg_backend_pid()
