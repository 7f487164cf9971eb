-- Messages, one for each number.
-- $1 topic text, $2 numbers bigint[], $3 payloads text[], $4 keys bigint, $5 days ahead int
insert into outbox.message (created_at, topic, key, payload)
select clock_timestamp() + $5::int * interval '24 hours', $1::text,
	'customer-' || r.n % $4::bigint, r.payload
from unnest($2::bigint[], $3::text[]) as r (n, payload)
