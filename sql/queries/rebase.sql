-- $1 reason text
select audit_id, restamped from outbox.rebase($1::text)
