-- The snapshot of now: equal to the one that was looked at last, nothing has moved.
select pg_current_snapshot()::text
