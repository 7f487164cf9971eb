-- A slot that begins behind what is visible in a snapshot.
-- $1 slot text, $2 snapshot pg_snapshot, $3 shards int
with made as (insert into outbox.slot (name, shards, start)
	values ($1::text, $3::int, $2::pg_snapshot))
select outbox.slot_shards($1::text, $3::int, $2::pg_snapshot, 0)
