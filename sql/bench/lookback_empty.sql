truncate outbox.lookback, outbox.lookback_log, outbox.lookback_overdue, outbox.lookback_conflict
