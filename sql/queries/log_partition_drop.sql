-- $1 publisher text, $2 shard int, $3 n bigint
select outbox.log_partition_drop($1::text, $2::int, $3::bigint);
