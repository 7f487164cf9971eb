-- $1 slot text, $2 shard int. The queues of the shard's parked rows.
select distinct p.topic, p.key from outbox.parked p
where p.slot = $1::text and p.shard = $2::int and p.key is not null
