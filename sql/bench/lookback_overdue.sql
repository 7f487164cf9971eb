-- Prepares that the relay must ask about from now on, already promoted. Their partition is not one of
-- the reader's, which would promote them again.
-- $1 section text, $2 type text, $3 topic text, $4 first bigint, $5 count bigint
with made as (
	insert into outbox.lookback (biz_type, biz_id, kind, section, source_partition, source_offset,
		topic, key, payload, check_at, digest, event_id)
	select $2::text, r::text, 'prepare', $1::text, -1, r, $3::text,
		convert_to('customer-' || r, 'UTF8'),
		convert_to(json_build_object('n', 1000000000 + r, 'text', repeat('x', 270))::text, 'UTF8'),
		clock_timestamp(), '\x00', gen_random_uuid()
	from generate_series($4::bigint, $4::bigint + $5::bigint - 1) r
	returning section, biz_type, biz_id, prepared_at, check_at
)
insert into outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, next_check)
select section, biz_type, biz_id, prepared_at, check_at from made
