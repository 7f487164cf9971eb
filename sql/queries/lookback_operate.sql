-- $1 verb text, $2 chosen jsonb, $3 reason text, $4 whole boolean.
select audit_id, done, refused, duplicates from outbox.lookback_operate($1::text, $2::jsonb, $3::text, $4::boolean)
