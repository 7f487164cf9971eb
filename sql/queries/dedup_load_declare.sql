-- Ids as bytes: those of bytea (oid 17) themselves, of all else those of its text. Times in milliseconds
-- since 1970; null for what is no moment.
declare outbox_load no scroll cursor for
select case pg_typeof(q.id)::oid when 17 then q.id::text::bytea else convert_to(q.id::text, 'UTF8') end,
	case when isfinite(q.at) then greatest(0, floor(extract(epoch from q.at) * 1000))::bigint end
from (select given.*:blank from (
:query
) as given) as q (id, at)
