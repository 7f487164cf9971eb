-- A writer's transaction: messages by outbox.publish.
-- $1 topic text, $2 numbers bigint[], $3 payloads text[], $4 keys bigint
select outbox.publish($1::text, 'customer-' || r.n % $4::bigint, r.payload)
from unnest($2::bigint[], $3::text[]) as r (n, payload)
