-- One statement, and so one transaction.
select won, lost, promoted, duplicates from outbox.lookback_apply($1, $2, $3, $4::int,
	$5::int[], $6::bigint[], $7::bigint[], $8::bigint[], $9::timestamptz[],
	$10::text[], $11::text[], $12::int[], $13::bigint[], $14::text[], $15::bytea[], $16::bytea[],
	$17::text[], $18::text[], $19::text[], $20::bigint[], $21::bigint[], $22::bytea[], $23::uuid[],
	$24::text[], $25::bigint[], $26::text[],
	$27::text[], $28::text[], $29::int[], $30::bigint[], $31::text[]::timestamptz[], $32::text[],
	$33::int[], $34::bigint[], $35::text[], $36::bytea[], $37::bytea[], $38::text[],
	$39::text[], $40::text[], $41::text[], $42::int[], $43::bigint[], $44::text[]::timestamptz[], $45::text[],
	$46::text[])
