select outbox.partition_holder($1::text);
