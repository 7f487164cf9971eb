-- $1 name text
select outbox.partition_drop($1::text);
