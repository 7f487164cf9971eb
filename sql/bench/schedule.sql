-- Scheduled messages of which none is due. $1 publisher text, $2 rows bigint
insert into outbox.scheduled (publisher, shard, id, created_at, event_id, topic, key, payload, deliver_at, tick)
select $1::text, 0, r, clock_timestamp(), gen_random_uuid(), 'scheduled',
	convert_to('scheduled-' || r / 3, 'UTF8'), convert_to(repeat('x', 300), 'UTF8'),
	clock_timestamp() + interval '1 day' + r * interval '1 ms', 0
from generate_series(0, $2::bigint - 1) r
