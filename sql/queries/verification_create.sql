-- $1 reason text, $2 caller text, $3 publisher text, $4 filter jsonb
select verification_id, audit_id from outbox.verification_create($1::text, $2::text, $3::text, $4::jsonb)
