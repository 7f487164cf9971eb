-- Undecided prepares that are not due, as the reader stores them.
-- $1 section text, $2 type text, $3 topic text, $4 first bigint, $5 count bigint, $6 partitions int
insert into outbox.lookback (biz_type, biz_id, kind, section, source_partition, source_offset, topic,
	key, payload, check_at, digest, event_id)
select $2::text, 'undecided-' || r, 'prepare', $1::text, r % $6::int, r, $3::text,
	convert_to('customer-' || r, 'UTF8'),
	convert_to(json_build_object('n', 1000000000 + r, 'text', repeat('x', 270))::text, 'UTF8'),
	clock_timestamp() + interval '1 day', '\x00', gen_random_uuid()
from generate_series($4::bigint, $4::bigint + $5::bigint - 1) r
