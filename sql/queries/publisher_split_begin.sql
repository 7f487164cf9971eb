-- $1 name text, $2 shards int
select outbox.publisher_split_begin($1::text, $2::int)
