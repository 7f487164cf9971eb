-- $1 section text, $2 types text[], $3 how many of each int[], $4 claim bigint, $5 its length in ms bigint
select array_position($2::text[], c.biz_type) as type, c.biz_id,
	to_char(c.prepared_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as prepared_at,
	c.attempts, c.pendings, c.check_service, c.check_url, c.is_expired,
	greatest(0, extract(epoch from clock_timestamp() - c.prepared_at) * 1000)::bigint as age_ms
from outbox.lookback_claim($1::text, $2::text[], $3::int[], $4::bigint, $5::bigint) c
