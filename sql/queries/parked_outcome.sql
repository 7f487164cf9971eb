-- The progress of a request. $1 publisher text, $2 its number in outbox.audit.
select sum(r.done) as done, sum(r.published) as published, sum(r.refused) as refused,
	min(r.refused_id) as refused_id,
	(array_agg(r.error order by r.refused_id) filter (where r.error is not null))[1] as error,
	coalesce(bool_and(r.ended_at is not null), true) as ended
from outbox.parked_request r where r.publisher = $1::text and r.id = $2::bigint
