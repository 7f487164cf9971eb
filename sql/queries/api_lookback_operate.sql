-- An operator's verb through the HTTP interface: returns the result, or the code of the refusal. $1 verb text,
-- $2 chosen jsonb, $3 reason text, $4 whole boolean, $5 caller text.
select coalesce(o.refused, jsonb_build_object('audit', o.audit_id, 'done', o.done,
	'sections', o.done_of, 'duplicates', o.duplicates)::text)
from outbox.lookback_operate($1::text, $2::jsonb, $3::text, $4::boolean, $5::text) o
