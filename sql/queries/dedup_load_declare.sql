-- Ids as bytes: a bytea (oid 17) itself, or else the bytes of the value's text. Times in milliseconds
-- since 1970; null for a time without a moment, such as infinity.
-- Any search_path: the session is not ours.
declare outbox_load no scroll cursor for
select case when pg_catalog.pg_typeof(q.id)::pg_catalog.oid operator(pg_catalog.=) 17
		then q.id::pg_catalog.text::pg_catalog.bytea
		else pg_catalog.convert_to(q.id::pg_catalog.text, 'UTF8') end,
	case when pg_catalog.isfinite(q.at) then greatest(0,
		pg_catalog.floor(extract(epoch from q.at) operator(pg_catalog.*) 1000))::bigint end
from (select given.*:blank from (
:query
) as given) as q (id, at)
