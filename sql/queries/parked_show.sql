-- One parked row without its payload, which not every reader may see. $1 publisher text, $2 id bigint.
select p.id, p.topic, encode(p.key, 'hex') as key, p.state, p.attempts,
	case when p.state in ('waiting', 'free') then to_char(p.next_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') end
		as next_at,
	p.error, to_char(p.parked_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as parked_at,
	r.verb, r.id as request_id, p.shard,
	to_char(p.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as created_at,
	p.event_id, p.partition, p.headers,
	head.id as head_id, head.state as head_state, head.error as head_error,
	case when head.id is null then 0 else (select count(*) from outbox.parked q
		where q.publisher = p.publisher and q.shard = p.shard and q.digest = p.digest
		and q.topic = p.topic and q.key = p.key
			and q.id > head.id and q.id < p.id) end as between_them,
	(select count(*) from outbox.parked q
		where q.publisher = p.publisher and q.shard = p.shard and q.digest = p.digest
		and q.topic = p.topic and q.key = p.key and q.id > p.id) as followers,
	has_column_privilege('outbox.parked', 'payload', 'select') as may_read_payload
from outbox.parked p
left join outbox.parked_request r on r.publisher = p.publisher and r.shard = p.shard
	and r.id = outbox.parked_request_of(p.publisher, p.shard, p.id, p.topic, p.key, p.error, p.parked_at, p.state,
		p.txid)
left join lateral (select q.id, q.state, q.error from outbox.parked q
	where q.publisher = p.publisher and q.shard = p.shard and q.digest = p.digest
		and q.topic = p.topic and q.key = p.key order by q.id limit 1) head
	on p.state = 'behind'
where p.publisher = $1::text and p.id = $2::bigint
