-- $1 slot text, $2 shard int. The queues of the shard's parked rows; with an id, those that nobody is behind
-- and that are in windows which whoever has taken the shard reads again; and the partitions of which rows
-- are parked since they were stalled (-1: the topic was missing): some of them may stand in Kafka.
select distinct p.topic, p.key, null::bigint as id, null::int as stalled from outbox.parked p
where p.slot = $1::text and p.shard = $2::int and p.key is not null
union all
select p.topic, p.key, p.id, null from outbox.parked p
where p.slot = $1::text and p.shard = $2::int and p.state <> 'behind'
	and p.tick > (select g.first_tick from outbox.progress g where g.slot = $1::text and g.shard = $2::int)
union all
select distinct p.topic, null::bytea, null::bigint, p.stalled from outbox.parked p
where p.slot = $1::text and p.shard = $2::int and p.stalled is not null
