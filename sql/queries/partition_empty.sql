select outbox.partition_empty($1::text);
