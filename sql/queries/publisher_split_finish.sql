-- $1 name text
select outbox.publisher_split_finish($1::text) as behind
