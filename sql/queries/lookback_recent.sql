-- From the newest 100,000 rows of the journal, by section and type: the decisions by their source, and
-- the undecided prepares.
with newest as materialized (
	select l.* from (
		select l.section, l.biz_type, l.biz_id, l.prepared_at, l.kind, l.source
		from outbox.lookback l order by l.txid desc limit 100000) l
)
select n.section, n.biz_type, count(*) filter (where n.source = 'message') as by_message,
	count(*) filter (where n.source = 'check') as by_check,
	count(*) filter (where n.source = 'operator') as by_operator,
	count(*) filter (where n.kind = 'prepare' and not d.decided) as undecided,
	coalesce(greatest(0, extract(epoch from clock_timestamp()
		- min(n.prepared_at) filter (where n.kind = 'prepare' and not d.decided)) * 1000)::bigint, 0)
		as oldest_age_ms
from newest n
cross join lateral (select n.kind = 'prepare' and exists (select from outbox.lookback d
	where d.biz_type = n.biz_type and d.biz_id = n.biz_id and d.prepared_at = n.prepared_at
		and d.kind = 'decision') as decided) d
group by n.section, n.biz_type order by 1, 2
