-- $1 reason text, $2 new identity boolean, $3 caller text
select audit_id, restamped from outbox.rebase($1::text, $2::boolean, $3::text)
