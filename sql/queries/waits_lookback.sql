-- Why ids are undecided: the last error of ids that the relay asked about, by section, type and service.
select o.section, o.biz_type, coalesce(o.check_service, '') as service, count(*) as ids,
	(array_agg(o.last_error order by o.overdue_at desc))[1] as error
from (
	select l.section, l.biz_type, l.check_service, l.last_error, l.overdue_at from outbox.lookback_overdue l
	where l.last_error is not null limit 10000) o
group by o.section, o.biz_type, o.check_service order by 1, 2, 3 limit 20
