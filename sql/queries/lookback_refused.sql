-- The rows of a batch that the tables refuse; writes nothing.
select kind, place, error from outbox.lookback_refused($1,
	$2::text[], $3::text[], $4::int[], $5::bigint[], $6::text[], $7::bytea[], $8::bytea[],
	$9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bytea[], $15::uuid[],
	$16::text[], $17::bigint[], $18::text[],
	$19::text[], $20::text[], $21::int[], $22::bigint[], $23::text[]::timestamptz[], $24::text[],
	$25::int[], $26::bigint[], $27::text[], $28::bytea[], $29::bytea[], $30::text[],
	$31::text[], $32::text[], $33::text[], $34::int[], $35::bigint[], $36::text[]::timestamptz[], $37::text[],
	$38::text[])
