-- What a business says of its ids. :function is its name, quoted. Whatever it returns, no more comes than one
-- row above what is asked for, and no more of a value than it takes to see that it is none.
-- $1 biz_type text, $2 biz_ids text[], $3 rows at most bigint
-- Any search_path: the session is not ours.
select pg_catalog.left(answer.biz_id::pg_catalog.text, 600),
	pg_catalog.left(answer.decision::pg_catalog.text, 20)
from :function($1::pg_catalog.text, $2::pg_catalog.text[]) as answer (biz_id, decision)
limit $3::bigint
