-- For each type the number of overdue and of parked ids, and the age of the oldest, in one pass that
-- ends after $3 rows. Also how many of the newest $4 tombstones that are older than a minute have no
-- prepare, and how many of the newest $4 conflicts are from the last hour.
-- $1 section text, $2 types text[], $3 bound bigint, $4 newest bigint
select t.place::int as type, count(o.state) filter (where o.state = 'overdue') as overdue,
	count(o.state) filter (where o.state = 'parked') as parked,
	coalesce(greatest(0, extract(epoch from clock_timestamp() - min(o.prepared_at)) * 1000)::bigint, 0)
		as oldest_age_ms,
	(select count(*) from (
			select l.biz_id from outbox.lookback l where l.kind = 'tombstone'
				and l.section = $1::text and l.biz_type = t.biz_type
				and l.prepared_at < clock_timestamp() - interval '1 minute'
			order by l.prepared_at desc limit $4::bigint) d
		where not exists (select from outbox.lookback p where p.biz_type = t.biz_type
			and p.biz_id = d.biz_id and p.kind = 'prepare')) as unprepared,
	(select count(*) from (
			select l.section, l.biz_type, l.at from outbox.lookback_conflict l
			order by l.id desc limit $4::bigint) c
		where c.section = $1::text and c.biz_type = t.biz_type
			and c.at > clock_timestamp() - interval '1 hour') as conflicts
from unnest($2::text[]) with ordinality t (biz_type, place)
left join (select l.biz_type, l.state, l.prepared_at from outbox.lookback_overdue l
	where l.section = $1::text limit $3::bigint) o on o.biz_type = t.biz_type
group by t.place, t.biz_type
