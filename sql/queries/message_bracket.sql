-- Offsets of a partition between which the log places a record: behind `after`, since progress covered the partition up
-- to there in the last log row that says so before row $5, and, if nothing delayed it, not beyond `upto`. The log has
-- the changes; outbox.destination has what they add up to. $1 publisher text, $2 shard int, $3 topic text, $4 partition
-- int, $5 n bigint
select coalesce((select (l.destinations -> $3::text -> 1 ->> $4::text)::bigint from outbox.log l
		where l.publisher = $1::text and l.shard = $2::int and l.n < $5::bigint and l.n >= $5::bigint - 500
			and l.destinations -> $3::text -> 1 ? $4::text
		order by l.n desc limit 1),
	(select t.offsets[$4::int + 1] from outbox.destination t
		where t.publisher = $1::text and t.shard = $2::int and t.topic = $3::text and t.n < $5::bigint)) as after,
	coalesce((select (l.destinations -> $3::text -> 1 ->> $4::text)::bigint from outbox.log l
		where l.publisher = $1::text and l.shard = $2::int and l.n >= $5::bigint and l.n < $5::bigint + 500
			and l.destinations -> $3::text -> 1 ? $4::text
		order by l.n limit 1),
	(select t.offsets[$4::int + 1] from outbox.destination t
		where t.publisher = $1::text and t.shard = $2::int and t.topic = $3::text and t.n >= $5::bigint)) as upto
