select action, publisher, shard, n from outbox.log_partitions_due();
