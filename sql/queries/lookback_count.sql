-- The number of chosen ids that are overdue or parked. Without an order the planner reads the table instead of its
-- index. $1 chosen jsonb (outbox.lookback_is).
select count(*) from outbox.lookback_overdue o where outbox.lookback_is(o, $1::jsonb)
