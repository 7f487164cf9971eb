-- $1 publisher text, $2 shard int, $3 n bigint
select outbox.log_partition_make($1::text, $2::int, $3::bigint);
