-- Why messages are parked, by publisher, topic, kind and partition. It looks at the first $1 rows of each publisher.
-- $1 bound bigint
select s.name as publisher, p.topic, p.stalled, count(*) as rows, min(p.error) as error,
	count(*) filter (where p.state = 'dead') as dead
from outbox.publisher s
cross join lateral (
	-- tick: as the index has it, and as parked_states.sql counts
	select q.topic, q.state, case when q.state in ('stalled', 'paused') then q.stalled end as stalled, q.error
	from outbox.parked q where q.publisher = s.name and q.tick >= 0 order by q.id limit $1::bigint) p
where p.state in ('waiting', 'dead', 'stalled', 'paused')
group by s.name, p.topic, p.stalled
order by s.name, rows desc, p.topic, p.stalled limit 20
