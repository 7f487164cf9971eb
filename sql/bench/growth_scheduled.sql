-- Due rows, and in front of them, by id, rows of the far future.
-- $1 publisher text, $2 rows of the far future bigint, $3 due rows bigint
insert into outbox.scheduled (publisher, shard, id, created_at, event_id, topic, key, payload, deliver_at, tick)
select $1::text, 0, r, clock_timestamp(), gen_random_uuid(), 'scheduled',
	convert_to('scheduled-' || r % 1000, 'UTF8'), convert_to(repeat('x', 300), 'UTF8'),
	clock_timestamp() + interval '30 days' + r * interval '1 s', 0
from generate_series(1, $2::bigint) r
union all
select $1::text, 0, 1000000 + r, clock_timestamp(), gen_random_uuid(), 'scheduled',
	convert_to('scheduled-' || r % 1000, 'UTF8'), convert_to(repeat('x', 300), 'UTF8'),
	clock_timestamp() - interval '1 s', 0
from generate_series(1, $3::bigint) r
