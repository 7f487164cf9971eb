-- Rows by id.
-- $1 ids bigint[]
select m.id, m.event_id, m.topic, m.key, m.partition
from outbox.message m where m.id = any ($1::bigint[])
