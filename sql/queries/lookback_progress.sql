select partition, n, next_offset from outbox.lookback_progress($1, $2)
