-- How many are parked.
select count(*) from outbox.parked
