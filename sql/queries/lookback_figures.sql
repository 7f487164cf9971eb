-- Of each type the overdue and the parked, and the age of the oldest. One pass that ends after so many
-- rows. $1 section text, $2 types text[], $3 bound bigint
select t.place::int as type, count(o.state) filter (where o.state = 'overdue') as overdue,
	count(o.state) filter (where o.state = 'parked') as parked,
	coalesce(greatest(0, extract(epoch from clock_timestamp() - min(o.prepared_at)) * 1000)::bigint, 0)
		as oldest_age_ms
from unnest($2::text[]) with ordinality t (biz_type, place)
left join (select l.biz_type, l.state, l.prepared_at from outbox.lookback_overdue l
	where l.section = $1::text limit $3::bigint) o on o.biz_type = t.biz_type
group by t.place
