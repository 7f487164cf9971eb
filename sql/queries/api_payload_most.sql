-- The longest payload that the tables take, in bytes (outbox.set_max_message_bytes).
select min(substring(pg_get_constraintdef(c.oid) from '<= (\d+)')::bigint)::text
from pg_constraint c
where c.contypid = 'outbox.message_payload'::regtype and c.conname = 'message_fits_max_message_bytes'
