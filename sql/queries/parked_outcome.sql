-- How far a request is. $1 slot text, $2 its number in outbox.audit. A retried row counts from 0 attempts.
with asked as (
	select p.id, p.error, p.request is null and p.attempts > 0 as refused
	from outbox.parked p where p.slot = $1::text and p.request_id = $2::bigint
)
select count(*) filter (where not refused) as waiting, count(*) filter (where refused) as refused,
	min(id) filter (where refused) as first_id,
	(array_agg(error order by id) filter (where refused))[1] as first_error
from asked
