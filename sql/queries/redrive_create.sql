-- $1 reason text, $2 caller text, $3 section text, $4 filter jsonb, $5 ends text, $6 rows bigint
select redrive_id, audit_id from outbox.redrive_create($1::text, $2::text, $3::text, $4::jsonb, $5::text, $6::bigint)
