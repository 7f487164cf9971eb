-- A table's partitions as a program reads them: microseconds since 1970, the default one
-- last without a range. The start of the present period comes with each.
-- $1 table text, $2 width bigint, in milliseconds
select p.name, p.from_us, p.to_us, pg_total_relation_size(c.oid) as bytes,
	-- null: the table has pages, and nothing has counted its rows yet
	case when c.reltuples > 0 then c.reltuples::bigint
		when c.relpages > 0 and c.reltuples = 0 or pg_relation_size(c.oid) = 0 then 0 end as rows_estimated,
	(extract(epoch from clock_timestamp()) * 1000000)::bigint as now_us,
	(extract(epoch from outbox.partition_floor(clock_timestamp(),
		$2::bigint * interval '1 ms')) * 1000000)::bigint as period_us,
	-- of a restored partition
	(select (extract(epoch from a.kept_until) * 1000000)::bigint from outbox.archive a
		where a.leaf = p.name and a.state = 'restored') as kept_until_us
from (
	select l.name, case when isfinite(l.from_at)
			then (extract(epoch from l.from_at) * 1000000)::bigint end as from_us,
		case when isfinite(l.to_at) then (extract(epoch from l.to_at) * 1000000)::bigint end as to_us,
		l.from_at as place
	from outbox.partitions($1::text) l
	union all select $1::text || '_default', null, null, null
) p
join pg_class c on c.relname = p.name and c.relnamespace = 'outbox'::regnamespace
order by p.place nulls last;
