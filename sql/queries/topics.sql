-- The topics that a publisher is known to publish to: its destinations, those that the newest log rows name
-- first, and those of the newest rows.
-- $1 publisher text
select t.topic from (
	select d.topic from outbox.destination d where d.publisher = $1::text
	union
	select jsonb_object_keys(l.destinations)
	from outbox.progress p
	join outbox.log l on l.publisher = p.publisher and l.shard = p.shard and l.n > p.folded
	where p.publisher = $1::text
	union
	select r.topic from (
		select m.topic from outbox.message m order by m.id desc limit 10000) r
) t order by 1 limit 1000
