-- $1 publisher text, $2 verb text, $3 chosen jsonb, $4 reason text, $5 about bigint, $6 caller text: null: none.
select audit_id from outbox.parked_request($1::text, $2::text, $3::jsonb, $4::text, $5::bigint, $6::text)
