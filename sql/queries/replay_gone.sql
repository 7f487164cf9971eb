-- The number of ids in a range that have no row, without ids beyond the newest row's.
-- $1 from bigint, $2 to bigint
select greatest(least($2::bigint, newest.id) - $1::bigint + 1, 0) - (
	select count(*) from outbox.message m where m.id >= $1::bigint and m.id <= $2::bigint) as gone
from (select max(m.id) as id from outbox.message m) newest
where newest.id is not null
