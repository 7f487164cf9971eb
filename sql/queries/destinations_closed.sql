-- The next closed destinations of a shard, with topics after $3, up to $4.
-- $1 publisher text, $2 shard int, $3 topic text, $4 most topics int
select d.topic from outbox.destination d
where d.publisher = $1::text and d.shard = $2::int and not d.open and d.topic > $3::text collate "C"
order by d.topic limit $4::int
