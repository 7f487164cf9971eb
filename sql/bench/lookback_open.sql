-- Whether anything is overdue.
select (exists (select from outbox.lookback_overdue))::int
