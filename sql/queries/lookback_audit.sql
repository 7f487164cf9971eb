-- The actions of operators on an id that they named. $1 type text, $2 id text.
select a.id, to_char(a.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at, a.who, a.verb, a.reason
from outbox.audit a
where a.verb in ('lookback commit', 'lookback rollback', 'lookback retry') and exists (
	select from jsonb_array_elements(a.target -> 'filter' -> 'ids') e (pair)
	where e.pair = jsonb_build_array($1::text, $2::text))
order by a.id
