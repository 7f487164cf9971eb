select place, wait_ms, clock from outbox.lookback_due($1, $2, $3::int[])
