-- $1 table text, $2 width bigint, in milliseconds
select outbox.partition_rehome($1::text, $2::bigint * interval '1 ms');
