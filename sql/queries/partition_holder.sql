-- $1 name text
select outbox.partition_holder($1::text);
