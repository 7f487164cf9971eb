-- $1 slot text, $2 verb text, $3 chosen jsonb, $4 reason text, $5 whole boolean.
select audit_id, noted
from outbox.parked_request($1::text, $2::text, $3::jsonb, $4::text, $5::boolean)
