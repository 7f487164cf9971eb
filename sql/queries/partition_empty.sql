-- $1 name text
select outbox.partition_empty($1::text);
