-- $1 table text: parked, replay, redrive or verification, $2 id bigint, $3 reason text, $4 caller text
select c.outcome, c.audit_id from outbox.parked_request_resume($2::bigint, $3::text, $4::text) c where $1::text = 'parked'
union all
select c.outcome, c.audit_id from outbox.job_resume($1::text, $2::bigint, $3::text, $4::text) c where $1::text <> 'parked'
