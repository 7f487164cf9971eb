-- Asks a business about its ids. :function is the quoted name of its function. Whatever that returns, the
-- result has at most one row more than asked for, and of each value only as much as shows that the value is
-- invalid.
-- $1 biz_type text, $2 biz_ids text[], $3 rows at most bigint
-- Any search_path: the session is not ours.
select pg_catalog.left(answer.biz_id::pg_catalog.text, 600),
	pg_catalog.left(answer.decision::pg_catalog.text, 20)
from :function($1::pg_catalog.text, $2::pg_catalog.text[]) as answer (biz_id, decision)
limit $3::bigint
