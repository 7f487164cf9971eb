-- Counts the rows that a request would change, among the first $4 rows. $1 publisher text, $2 chosen jsonb, $3 verb text,
-- $4 most rows looked at bigint. more: there are further rows. about: the number of rows, an estimate if
-- they are many.
with looked as (
	select c.id, c.state, outbox.parked_is(c.id, c.topic, c.key, c.error, c.parked_at, c.state, $2::jsonb) as meant
	from outbox.parked_candidates($1::text, $2::jsonb, 0, $4::bigint + 1) c
)
select count(*) filter (where l.meant) as matching,
	count(*) filter (where l.meant and outbox.parked_may($3::text, l.state)) as addressed,
	count(*) filter (where l.meant and l.state = 'behind') as behind,
	count(*) filter (where l.meant and l.state = 'free') as free,
	count(*) > $4::bigint as more,
	case when count(*) <= $4::bigint then count(*) else greatest(count(*), (
		select c.reltuples::bigint from pg_class c where c.oid = 'outbox.parked'::regclass)) end as about,
	-- before the snapshot: rows that are parked later than this were not counted
	(extract(epoch from statement_timestamp()) * 1000000)::bigint as at_us, pg_current_snapshot()::text as snapshot,
	count(*) filter (where l.meant and l.state = 'paused') as paused
from looked l
