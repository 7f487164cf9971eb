-- Judges messages by rules, and records those that pass; one row for each message, in their order.
-- $1 name text, $2 times, $3 marks, $4 numbers of parts, bigint[]; of the parts: $5 keys bytea[], and
-- bigint[]: $6 refuses, $7 most, $8 within, $9 oldest, $10 time to live, $11 and $12 begins and ends of
-- four pieces each
select v.verdict from unnest(outbox.rules_judge($1::text, $2::bigint[], $3::bigint[], $4::bigint[],
	$5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
	$12::bigint[])) with ordinality as v (verdict, n) order by v.n
