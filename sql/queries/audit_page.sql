-- A page of outbox.audit, the newest rows first. $1 before bigint, null: from the newest one on, $2 verb text, null: any,
-- $3 who text: a database user or a caller, null: any, $4 most bigint.
select a.id, to_char(a.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at, a.who, a.caller, a.verb,
	a.publisher, a.target::text, a.reason
from outbox.audit a
where ($1::bigint is null or a.id < $1::bigint) and ($2::text is null or a.verb = $2::text)
	and ($3::text is null or $3::text in (a.who, a.caller))
order by a.id desc limit $4::bigint
