-- Rows of a partition, counted up to a bound.
-- $1 table text, $2 from bigint, $3 to bigint, both in microseconds since 1970; $4 bound int
select case $1::text
	when 'message' then (select count(*) from (select from outbox.message
		where created_at >= to_timestamp(0) + $2::bigint * interval '1 us'
			and created_at < to_timestamp(0) + $3::bigint * interval '1 us' limit $4::int) r)
	when 'lookback' then (select count(*) from (select from outbox.lookback
		where prepared_at >= to_timestamp(0) + $2::bigint * interval '1 us'
			and prepared_at < to_timestamp(0) + $3::bigint * interval '1 us' limit $4::int) r)
	when 'unique_ledger' then (select count(*) from (select from outbox.unique_ledger
		where at >= to_timestamp(0) + $2::bigint * interval '1 us'
			and at < to_timestamp(0) + $3::bigint * interval '1 us' limit $4::int) r)
	else (select count(*) from (select from outbox.processed
		where record_at >= to_timestamp(0) + $2::bigint * interval '1 us'
			and record_at < to_timestamp(0) + $3::bigint * interval '1 us' limit $4::int) r)
	end
