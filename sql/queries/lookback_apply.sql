-- One statement, and so one transaction.
select won, lost, promoted from outbox.lookback_apply($1, $2, $3, $4::int,
	$5::int[], $6::bigint[], $7::bigint[], $8::bigint[], $9::timestamptz[],
	$10::text[], $11::text[], $12::int[], $13::bigint[], $14::text[], $15::bytea[], $16::bytea[],
	$17::text[], $18::text[], $19::text[], $20::bigint[], $21::bigint[], $22::bytea[], $23::uuid[],
	$24::text[], $25::text[], $26::int[], $27::bigint[], $28::text[]::timestamptz[], $29::text[],
	$30::int[], $31::bigint[], $32::text[], $33::bytea[], $34::bytea[], $35::text[],
	$36::text[], $37::text[], $38::text[], $39::int[], $40::bigint[], $41::text[]::timestamptz[], $42::text[],
	$43::text[])
