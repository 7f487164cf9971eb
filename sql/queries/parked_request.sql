-- $1 publisher text, $2 verb text, $3 chosen jsonb, $4 reason text, $5 about bigint, $6 caller text: null: none, $7 total
-- bigint, $8 exact boolean, $9 seen pg_snapshot: null: there was no preview.
select audit_id from outbox.parked_request($1::text, $2::text, $3::jsonb, $4::text, $5::bigint, $6::text, $7::bigint,
	$8::boolean, $9::pg_snapshot)
