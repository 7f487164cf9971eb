-- Parked rows that the request has skipped so far.
select coalesce(sum(r.done), 0) from outbox.parked_request r
