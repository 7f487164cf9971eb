-- From the first decision that an answer brought to the last one, in microseconds.
-- $1 type text, $2 how many there must be bigint
select case when count(*) = $2::bigint
	then (extract(epoch from max(l.decided_at) - min(l.decided_at)) * 1000000)::bigint end
from outbox.lookback l
where l.kind = 'decision' and l.source = 'check' and l.biz_type = $1::text and l.biz_id <> '0'
