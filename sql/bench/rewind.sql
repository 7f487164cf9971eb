-- A publisher that begins behind the rows that are visible in a snapshot.
-- $1 publisher text, $2 snapshot pg_snapshot, $3 shards int
with made as (insert into outbox.publisher (name, shards, start)
	values ($1::text, $3::int, $2::pg_snapshot))
select outbox.publisher_shards($1::text, $3::int, $2::pg_snapshot, 0)
