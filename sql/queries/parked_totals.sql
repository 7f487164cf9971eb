-- The chosen rows by state, among the first $3 in the order of ids. $1 publisher text, $2 chosen jsonb, $3 most rows
-- looked at bigint. more: there are that many.
with looked as (
	select c.state, outbox.parked_is(c.id, c.topic, c.key, c.error, c.parked_at, c.state, $2::jsonb) as meant
	from outbox.parked_candidates($1::text, $2::jsonb, 0, $3::bigint) c
)
select l.state, count(*) filter (where l.meant), sum(count(*)) over () >= $3::bigint as more
from looked l group by l.state
