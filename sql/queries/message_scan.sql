-- $1 event id uuid or null, $2 topic text, $3 key bytea, $4 from timestamptz, $5 to timestamptz, $6 after bigint, $7 most
-- int, $8 within ms int
select f.id, f.created_at::text, f.upto_id, f.over
from outbox.message_scan($1::uuid, $2::text, $3::bytea, $4::timestamptz, $5::timestamptz, $6::bigint, $7::int, $8::int) f
