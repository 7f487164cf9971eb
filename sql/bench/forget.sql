-- Drops a publisher and keeps its parked rows (publisher_drop.sql drops them as well).
-- $1 publisher text
with gone as (delete from outbox.publisher where name = $1::text)
delete from outbox.log where publisher = $1::text
