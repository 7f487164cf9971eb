-- $1 name text
select outbox.slot_split_finish($1::text) as behind
