-- A slot goes, and what is parked stays (slot_drop.sql takes that along).
-- $1 slot text
with gone as (delete from outbox.slot where name = $1::text)
delete from outbox.log where slot = $1::text
