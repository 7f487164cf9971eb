-- $1 name text
select outbox.publisher_split_cancel($1::text)
