-- What a request would do. $1 slot text, $2 chosen jsonb, $3 verb text.
select count(*) as matching,
	count(*) filter (where outbox.parked_may($3::text, p.state, p.request)) as addressed,
	count(*) filter (where p.request is not null) as asked,
	count(*) filter (where p.request is null and p.state = 'behind') as behind,
	count(*) filter (where p.request is null and p.state = 'free') as free
from outbox.parked p
where p.slot = $1::text
	and outbox.parked_is(p.id, p.topic, p.key, p.error, p.parked_at, p.state, $2::jsonb)
