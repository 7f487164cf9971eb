-- The same rows into the plain table.
-- $1 topic text, $2 numbers bigint[], $3 payloads text[], $4 keys bigint
insert into outbox.bench_plain (topic, key, payload)
select $1::text, convert_to('customer-' || r.n % $4::bigint, 'UTF8'), convert_to(r.payload, 'UTF8')
from unnest($2::bigint[], $3::text[]) as r (n, payload)
