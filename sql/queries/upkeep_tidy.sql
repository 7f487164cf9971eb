-- $1 retention in ms bigint
select outbox.lookback_tidy($1::bigint), outbox.job_tidy($1::bigint)
