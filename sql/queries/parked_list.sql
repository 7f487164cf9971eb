-- A page of parked rows in the order of ids. $1 publisher text, $2 chosen jsonb (outbox.parked_is), $3 after
-- bigint, $4 most bigint, $5 verb text: only rows that it may ask for; null: all. Requests are looked up for the rows
-- of the page only: a plan that sorts the table must not do it for every row.
with page as materialized (
	select p.id, p.publisher, p.shard, p.topic, p.key, p.state, p.attempts, p.next_at, p.error, p.parked_at, p.txid
	from outbox.parked p
	where p.publisher = $1::text and p.id > $3::bigint and p.tick >= 0
		and ($5::text is null or outbox.parked_may($5::text, p.state))
		and outbox.parked_is(p.id, p.topic, p.key, p.error, p.parked_at, p.state, $2::jsonb)
	order by p.id limit $4::bigint
)
select p.id, p.topic, encode(p.key, 'hex') as key, p.state, p.attempts,
	case when p.state in ('waiting', 'free') then to_char(p.next_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') end
		as next_at,
	p.error, to_char(p.parked_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as parked_at,
	r.verb, r.id as request_id
from page p
left join outbox.parked_request r on r.publisher = p.publisher and r.shard = p.shard
	and r.id = outbox.parked_request_of(p.publisher, p.shard, p.id, p.topic, p.key, p.error, p.parked_at, p.state,
		p.txid)
order by p.id
