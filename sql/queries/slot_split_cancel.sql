-- $1 name text
select outbox.slot_split_cancel($1::text)
