-- $1 name text
select outbox.partition_detach($1::text);
