vacuum (analyze) outbox.lookback, outbox.lookback_overdue
