-- A publisher goes, and what is parked stays (publisher_drop.sql takes that along).
-- $1 publisher text
with gone as (delete from outbox.publisher where name = $1::text)
delete from outbox.log where publisher = $1::text
