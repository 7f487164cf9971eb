-- An operator's verb through the HTTP interface: returns the result, or the code of the refusal. $1 verb text,
-- $2 chosen jsonb, $3 reason text, $4 whole boolean, $5 caller text, $6 most bigint: the
-- number of ids that the preview showed; null: there was none.
select coalesce(o.refused, jsonb_build_object('audit', o.audit_id, 'done', o.done,
	'sections', o.done_of, 'duplicates', o.duplicates, 'left_alone', coalesce($6::bigint - o.done, 0))::text)
from outbox.lookback_operate($1::text, $2::jsonb, $3::text, $4::boolean, $5::text, $6::bigint) o
