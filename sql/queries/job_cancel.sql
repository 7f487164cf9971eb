-- $1 kind text: parked, replay or redrive, $2 id bigint, $3 reason text, $4 caller text
select c.outcome, c.audit_id from outbox.parked_request_cancel($2::bigint, $3::text, $4::text) c where $1::text = 'parked'
union all
select c.outcome, c.audit_id from outbox.replay_cancel($2::bigint, $3::text, $4::text) c where $1::text = 'replay'
union all
select c.outcome, c.audit_id from outbox.redrive_cancel($2::bigint, $3::text, $4::text) c where $1::text = 'redrive'
