-- Stores the results for the rows of a claim. $1 section text, $2 claim bigint, $3 types text[], $4 ids
-- text[],
-- $5 prepared_ats timestamptz[], $6 results text[], $7 errors text[], $8 counts boolean[],
-- $9 next in ms bigint[], $10 parks boolean[]
-- Returns a row for each parked row, with its place in the arrays; a single row with place 0 if there is none.
select s.won, s.lost, s.strange, coalesce(p.place, 0), s.duplicates
from outbox.lookback_settle($1::text, $2::bigint, $3::text[], $4::text[], $5::timestamptz[], $6::text[],
	$7::text[], $8::boolean[], $9::bigint[], $10::boolean[]) s
left join unnest(s.parked) p (place) on true
order by p.place
