-- The obstacle to a request for each of these ids. $1 publisher text, $2 ids bigint[]. Null state: not parked.
select i.id, p.state, r.verb, coalesce(a.caller || ' via ' || a.who, a.who) as who,
	to_char(a.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at,
	a.reason, head.id as head_id, head.state as head_state
from unnest($2::bigint[]) i (id)
left join outbox.parked p on p.publisher = $1::text and p.id = i.id
left join outbox.parked_request r on r.publisher = p.publisher and r.shard = p.shard
	and r.id = outbox.parked_request_of(p.publisher, p.shard, p.id, p.topic, p.key, p.error, p.parked_at, p.state,
		p.txid)
left join outbox.audit a on a.id = r.id
left join lateral (select q.id, q.state from outbox.parked q
	where q.publisher = p.publisher and q.shard = p.shard and q.digest = p.digest
		and q.topic = p.topic and q.key = p.key order by q.id limit 1) head on true
order by i.id
