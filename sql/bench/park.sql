-- Parked messages of which none is due: refused ones that wait, dead ones, and those behind them.
-- $1 publisher text, $2 rows bigint
insert into outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state,
	error, attempts, next_at)
select $1::text, 0, r, clock_timestamp(), gen_random_uuid(), 'parked',
	convert_to('parked-' || r / 3, 'UTF8'), convert_to(repeat('x', 300), 'UTF8'), 0,
	case when r % 3 > 0 then 'behind' when r % 2 = 0 then 'waiting' else 'dead' end,
	case when r % 3 = 0 then 'refused' end, case when r % 3 = 0 then 1 else 0 end,
	clock_timestamp() + interval '1 day'
from generate_series(0, $2::bigint - 1) r
