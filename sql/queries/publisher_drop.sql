-- $1 name text
select outbox.publisher_drop($1::text)
