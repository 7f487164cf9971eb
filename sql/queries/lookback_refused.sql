-- The rows of a batch that the tables refuse; writes nothing.
select kind, place, error from outbox.lookback_refused($1,
	$2::text[], $3::text[], $4::int[], $5::bigint[], $6::text[], $7::bytea[], $8::bytea[],
	$9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bytea[], $15::uuid[],
	$16::text[], $17::text[], $18::int[], $19::bigint[], $20::text[]::timestamptz[], $21::text[],
	$22::int[], $23::bigint[], $24::text[], $25::bytea[], $26::bytea[], $27::text[],
	$28::text[], $29::text[], $30::text[], $31::int[], $32::bigint[], $33::text[]::timestamptz[], $34::text[],
	$35::text[])
