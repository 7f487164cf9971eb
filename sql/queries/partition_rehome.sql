-- $1 width bigint, in milliseconds
select outbox.partition_rehome($1::bigint * interval '1 ms');
