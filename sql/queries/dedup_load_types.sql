-- The types of the columns of :query, without running it. :blank stands for the time of one without.
select pg_typeof(q.id), pg_typeof(q.at) from (select) as one left join (select given.*:blank from (
:query
) as given) as q (id, at) on false
