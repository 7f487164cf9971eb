-- What is overdue and parked, and the conflicts that are remembered, by section and type.
select coalesce(o.section, c.section) as section, coalesce(o.biz_type, c.biz_type) as biz_type,
	coalesce(o.overdue, 0) as overdue, coalesce(o.parked, 0) as parked,
	coalesce(o.oldest_age_ms, 0) as oldest_age_ms, coalesce(c.conflicts, 0) as conflicts
from (
	select o.section, o.biz_type, count(*) filter (where o.state = 'overdue') as overdue,
		count(*) filter (where o.state = 'parked') as parked,
		greatest(0, extract(epoch from clock_timestamp() - min(o.prepared_at)) * 1000)::bigint
			as oldest_age_ms
	from outbox.lookback_overdue o group by o.section, o.biz_type) o
full join (
	select c.section, c.biz_type, count(*) as conflicts from outbox.lookback_conflict c
	group by c.section, c.biz_type) c on c.section = o.section and c.biz_type = o.biz_type
order by 1, 2
