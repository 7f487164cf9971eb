-- The planner's estimate of the rows of a range, without reading them. An open end is null, since the planner would expect that it
-- leaves most rows out. $1 from timestamptz, $2 to timestamptz
explain (format json) select from outbox.message m
where ($1::timestamptz is null or m.created_at >= $1::timestamptz) and ($2::timestamptz is null or m.created_at < $2::timestamptz)
