-- What a business says of its ids. :function is its name, quoted. Whatever it returns, no more comes than one
-- row above what is asked for, and no more of a value than it takes to see that it is none.
-- $1 biz_type text, $2 biz_ids text[], $3 rows at most bigint
select left(answer.biz_id::text, 600), left(answer.decision::text, 20)
from :function($1::text, $2::text[]) as answer (biz_id, decision)
limit $3::bigint
