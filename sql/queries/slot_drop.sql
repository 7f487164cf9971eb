-- $1 name text
select outbox.slot_drop($1::text)
