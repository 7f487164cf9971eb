-- The parked rows of each publisher by state; counts up to $1 rows of each publisher, in the order of
-- ids.
-- $1 bound bigint
select s.name as publisher, count(*) filter (where p.state = 'waiting') as waiting,
	count(*) filter (where p.state = 'dead') as dead,
	count(*) filter (where p.state = 'stalled') as stalled,
	count(*) filter (where p.state = 'paused') as paused,
	count(*) filter (where p.state = 'free') as free,
	count(*) filter (where p.state = 'behind') as behind, count(p.state) >= $1::bigint as more,
	coalesce(greatest(0, extract(epoch from clock_timestamp() - min(p.parked_at)) * 1000)::bigint, 0)
		as oldest_age_ms
from outbox.publisher s
left join lateral (select q.state, q.parked_at from outbox.parked q
	where q.publisher = s.name and q.tick >= 0 order by q.id limit $1::bigint) p on true
group by s.name order by s.name
