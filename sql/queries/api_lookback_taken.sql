-- Of these ids ($1: [[type, id], ...]) those that were prepared: place in the list from 1 on, and the digest of
-- the first prepare.
select coalesce(jsonb_agg(jsonb_build_array(i.place, encode(l.digest, 'hex'))
	order by i.place), '[]')::text
from jsonb_array_elements($1::jsonb) with ordinality i (pair, place)
cross join lateral (
	select l.digest from outbox.lookback l
	where l.biz_type = i.pair ->> 0 and l.biz_id = i.pair ->> 1
		and l.kind >= 'prepare' and l.kind <= 'prepare' -- by the key
	order by l.prepared_at limit 1) l
