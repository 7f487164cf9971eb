-- $1 name text
select outbox.publisher_split_bound($1::text)
