-- What operators did about a row, the newest last. $1 slot text, $2 id bigint.
select a.id, to_char(a.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at, a.who, a.verb, a.reason
from outbox.audit a
where a.slot = $1::text and (a.target -> 'ids' @> to_jsonb($2::bigint)
	or a.id = (select p.request_id from outbox.parked p
		where p.slot = $1::text and p.id = $2::bigint))
order by a.id
