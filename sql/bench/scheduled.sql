-- How many are scheduled.
select count(*) from outbox.scheduled
