-- By section and type: overdue and parked ids, remembered conflicts, and, among the newest 10,000
-- tombstones, the decisions whose prepare never came.
with late as (
	select o.section, o.biz_type, count(*) filter (where o.state = 'overdue') as overdue,
		count(*) filter (where o.state = 'parked') as parked, min(o.prepared_at) as oldest
	from outbox.lookback_overdue o group by o.section, o.biz_type
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
	coalesce(c.conflicts, 0) as conflicts, coalesce(u.unprepared, 0) as unprepared
from late l full join conflicts c using (section, biz_type) full join unprepared u using (section, biz_type)
order by 1, 2
