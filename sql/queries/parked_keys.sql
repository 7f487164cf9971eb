-- $1 slot text, $2 shard int. The queues of the shard's parked rows, and, with an id, those that nobody is
-- behind and that are in windows which whoever has taken the shard reads again.
select distinct p.topic, p.key, null::bigint as id from outbox.parked p
where p.slot = $1::text and p.shard = $2::int and p.key is not null
union all
select p.topic, p.key, p.id from outbox.parked p
where p.slot = $1::text and p.shard = $2::int and p.state <> 'behind'
	and p.tick > (select g.first_tick from outbox.progress g where g.slot = $1::text and g.shard = $2::int)
