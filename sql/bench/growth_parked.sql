-- Parked messages in queues of three, whose heads are dead, or stalled because their topic was missing.
-- $1 publisher text, $2 rows bigint, $3 topic text, $4 state of the heads text
insert into outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state,
	error, stalled, attempts, next_at)
select $1::text, 0, r, clock_timestamp(), gen_random_uuid(), $3::text,
	convert_to('parked-' || r / 3, 'UTF8'), convert_to(repeat('x', 300), 'UTF8'), 0,
	case when r % 3 > 0 then 'behind' else $4::text end,
	case when r % 3 = 0 then 'refused' end,
	case when r % 3 = 0 and $4::text = 'stalled' then -1 end,
	case when r % 3 = 0 then 1 else 0 end, clock_timestamp()
from generate_series(0, $2::bigint - 1) r
