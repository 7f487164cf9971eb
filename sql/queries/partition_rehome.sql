-- $1 width in milliseconds
select outbox.partition_rehome($1::bigint * interval '1 ms');
