-- Messages, one for each number.
-- $1 topic text, $2 numbers bigint[], $3 payloads text[], $4 keys bigint, $5 days ahead int, $6 two headers boolean
insert into outbox.message (created_at, topic, key, payload, headers)
select clock_timestamp() + $5::int * interval '24 hours', $1::text,
	'customer-' || r.n % $4::bigint, r.payload,
	case when $6::boolean then jsonb_build_object('trace-id', md5(r.n::text), 'content-type', 'application/json') end
from unnest($2::bigint[], $3::text[]) as r (n, payload)
