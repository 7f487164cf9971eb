-- One statement, and so one transaction.
select won, lost, promoted from outbox.lookback_apply($1, $2, $3, $4::int,
	$5::int[], $6::bigint[], $7::bigint[], $8::bigint[], $9::timestamptz[],
	$10::text[], $11::int[], $12::bigint[], $13::text[], $14::text[],
	$15::text[], $16::bytea[], $17::bytea[], $18::text[], $19::text[], $20::text[],
	$21::bigint[], $22::bigint[], $23::bytea[], $24::uuid[],
	$25::timestamptz[], $26::text[], $27::text[])
