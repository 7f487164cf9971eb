-- The open requests of a publisher, and their progress. $1 publisher text.
select r.id, r.verb, r.filter::text, max(coalesce(a.caller || ' via ' || a.who, a.who)) as who,
	to_char(max(a.at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at, max(a.reason) as reason,
	max(r.about) as about, least(max(r.about), min(r.looked)) as looked, sum(r.done) as done,
	sum(r.published) as published, sum(r.refused) as refused
from outbox.parked_request r join outbox.audit a on a.id = r.id
where r.publisher = $1::text and r.id in (select o.id from outbox.parked_request o
	where o.publisher = $1::text and o.ended_at is null)
group by r.id, r.verb, r.filter order by r.id
