-- $1 publisher text, $2 shard int
select l.n, l.nonce, cardinality(l.ticks) - 1 as windows,
	case when l.listed_tick > l.first_tick then l.listed_tick end as listed_tick,
	outbox.timeline() as on_the_primary
from outbox.log l where l.publisher = $1::text and l.shard = $2::int order by l.n desc limit 1
