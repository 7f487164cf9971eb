-- More partitions for future days, besides today's, tomorrow's and the default one. Rows are spread from
-- today on, because the relay's upkeep drops old partitions.
-- $1 partitions int
select outbox.partition_create('message', d.name),
	outbox.partition_attach('message', d.name, d.from_at, d.to_at)
from (
	select outbox.partition_name('message', f.at) as name, f.at as from_at, f.at + interval '24 hours' as to_at
	from generate_series(2, $1::int - 2) as day
	cross join lateral (select outbox.partition_floor(clock_timestamp(), '1 day')
		+ day * interval '24 hours') as f (at)
) d
