select action, slot, shard, n from outbox.log_partitions_due();
