-- The types of the columns of :query, without running it. :blank adds the time to a query without one.
-- Any search_path: the session is not ours.
select pg_catalog.pg_typeof(q.id), pg_catalog.pg_typeof(q.at) from (select) as one left join (select given.*:blank from (
:query
) as given) as q (id, at) on false
