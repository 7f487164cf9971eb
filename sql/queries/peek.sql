-- The current snapshot: if it equals the last one that was searched, nothing has changed.
select pg_current_snapshot()::text
