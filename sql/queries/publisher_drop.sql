-- The same transaction adds the reason to outbox.audit.
-- $1 name text, $2 forced words text, comma separated or "", $3 reason text, $4 caller text
with dropped as materialized (
	select outbox.publisher_drop($1::text)
)
insert into outbox.audit (caller, verb, publisher, target, reason)
select $4::text, 'publisher drop', $1::text, jsonb_build_object('publisher', $1::text, 'force', $2::text), $3::text
from dropped
returning id
