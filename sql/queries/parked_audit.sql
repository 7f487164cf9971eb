-- Lists the requests of operators about a row, the newest last: requests that name its id, the last request that
-- retried it, and open requests whose filter matches it. $1 publisher text, $2 id bigint.
select a.id, to_char(a.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at, 
	coalesce(a.caller || ' via ' || a.who, a.who) as who, a.verb, a.reason
from outbox.audit a
where a.publisher = $1::text and (a.target -> 'filter' -> 'ids' @> to_jsonb($2::bigint)
	or a.id in (select unnest(array[p.request_id, outbox.parked_request_of(p.publisher, p.shard, p.id, p.topic,
			p.key, p.error, p.parked_at, p.state, p.txid)])
		from outbox.parked p where p.publisher = $1::text and p.id = $2::bigint))
order by a.id
