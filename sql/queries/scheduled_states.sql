-- The scheduled rows of each publisher, counted up to $1; how long the first of them has been due, or how
-- long until it is due (0: it is due, or there is none). $1 bound bigint
select s.name as publisher, c.rows, c.rows >= $1::bigint as more,
	coalesce(greatest(0, extract(epoch from clock_timestamp() - f.first_at) * 1000)::bigint, 0)
		as late_ms,
	coalesce(greatest(0, extract(epoch from f.first_at - clock_timestamp()) * 1000)::bigint, 0)
		as next_ms
from outbox.publisher s
cross join lateral (select count(*) as rows from (select from outbox.scheduled q
	where q.publisher = s.name and q.tick >= 0 limit $1::bigint) counted) c
cross join lateral (select min(m.first_at) as first_at from generate_series(0, s.shards - 1) g (shard)
	cross join lateral (select q.deliver_at as first_at from outbox.scheduled q
		where q.publisher = s.name and q.shard = g.shard and q.tick >= 0 order by q.deliver_at limit 1) m) f
order by s.name
