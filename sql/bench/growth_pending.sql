-- 0 once the publisher has published all rows.
select (cardinality(p.ticks) > 1 or exists (select from outbox.message m
	where not pg_visible_in_snapshot(m.txid, p.ticks[1])))::int
from outbox.progress p
