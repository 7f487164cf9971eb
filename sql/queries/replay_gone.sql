-- How many ids of a range have no row; ids beyond the newest row's do not count.
-- $1 from bigint, $2 to bigint
select greatest(least($2::bigint, newest.id) - $1::bigint + 1, 0) - (
	select count(*) from outbox.message m where m.id >= $1::bigint and m.id <= $2::bigint) as gone
from (select max(m.id) as id from outbox.message m) newest
where newest.id is not null
