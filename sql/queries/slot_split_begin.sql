-- $1 name text, $2 shards int
select outbox.slot_split_begin($1::text, $2::int)
