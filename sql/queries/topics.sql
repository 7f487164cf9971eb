-- The topics that a slot is known to publish to: those in its log, and those of the newest rows.
-- $1 slot text
select t.topic from (
	select jsonb_object_keys(outbox.destinations(s.name, g.shard)) as topic
	from outbox.slot s cross join lateral generate_series(0, s.shards - 1) g (shard)
	where s.name = $1::text
	union
	select r.topic from (
		select m.topic from outbox.message m order by m.id desc limit 10000) r
) t order by 1 limit 1000
