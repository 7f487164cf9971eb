-- Parked rows that are due, each with its own key.
-- $1 publisher text, $2 bytes of a key bigint (0: a few), $3 rows bigint
insert into outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state,
	error, attempts, next_at)
select $1::text, 0, r, clock_timestamp(), gen_random_uuid(), 'parked',
	convert_to(case when $2::bigint = 0 then r::text else left(r || '-' || (
		select string_agg(md5(r || '.' || g), '') from generate_series(0, $2::bigint / 32) g),
		$2::int) end, 'UTF8'),
	convert_to(repeat('x', 300), 'UTF8'), 0, 'waiting', 'refused', 1, clock_timestamp() - interval '1 s'
from generate_series(1, $3::bigint) r
