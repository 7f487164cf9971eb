-- $1 name text
select outbox.slot_split_bound($1::text)
