-- By section and type: overdue and parked ids, remembered conflicts, and, among the newest 10,000
-- tombstones, the decisions whose prepare never came. Counts up to $1 overdue and $1 parked ids of each type, by
-- indexes; more: there are that many. The types are found by steps through the same indexes.
-- $1 bound bigint
with recursive types (section, biz_type) as (
	select '' collate "C", '' collate "C" -- before the first
	union all
	select n.section, n.biz_type from types t cross join lateral (
		select f.section, f.biz_type from (
			(select o.section, o.biz_type from outbox.lookback_overdue o
			where o.state = 'overdue' and (o.section, o.biz_type) > (t.section, t.biz_type)
			order by o.section, o.biz_type limit 1)
			union all
			(select o.section, o.biz_type from outbox.lookback_overdue o
			where o.state = 'parked' and (o.section, o.biz_type) > (t.section, t.biz_type)
			order by o.section, o.biz_type limit 1)) f
		order by f.section, f.biz_type limit 1) n
), late as (
	select t.section, t.biz_type, o.ids as overdue, p.ids as parked, least(o.oldest, p.oldest) as oldest,
		greatest(o.ids, p.ids) >= $1::bigint as more
	from types t
	cross join lateral (
		select count(*) as ids, min(c.prepared_at) as oldest from (
			select o.prepared_at from outbox.lookback_overdue o
			where o.state = 'overdue' and o.section = t.section and o.biz_type = t.biz_type
			order by o.next_check limit $1::bigint) c) o
	cross join lateral (
		select count(*) as ids, min(c.prepared_at) as oldest from (
			select o.prepared_at from outbox.lookback_overdue o
			where o.state = 'parked' and o.section = t.section and o.biz_type = t.biz_type
			order by o.biz_id, o.prepared_at limit $1::bigint) c) p
	where t.section <> ''
), conflicts as (
	select c.section, c.biz_type, count(*) as conflicts from outbox.lookback_conflict c
	group by c.section, c.biz_type
), unprepared as (
	select d.section, d.biz_type, count(*) as unprepared
	from (
		select l.section, l.biz_type, l.biz_id from outbox.lookback l
		where l.kind = 'tombstone' and l.prepared_at < clock_timestamp() - interval '1 minute'
		order by l.prepared_at desc limit 10000) d
	where not exists (select from outbox.lookback p where p.biz_type = d.biz_type
		and p.biz_id = d.biz_id and p.kind = 'prepare')
	group by d.section, d.biz_type
)
select section, biz_type, coalesce(l.overdue, 0) as overdue, coalesce(l.parked, 0) as parked,
	coalesce(greatest(0, extract(epoch from clock_timestamp() - l.oldest) * 1000)::bigint, 0)
		as oldest_age_ms,
	coalesce(c.conflicts, 0) as conflicts, coalesce(u.unprepared, 0) as unprepared, coalesce(l.more, false) as more
from late l full join conflicts c using (section, biz_type) full join unprepared u using (section, biz_type)
order by 1, 2
