-- The newest log row of each shard, for people. It reads no message, so that a lock of that table does not
-- delay it.
select p.publisher, p.shard, p.shards, p.split_to, p.n, p.epoch, p.owner,
	-- as of this snapshot, which does not show later renewals
	case when p.lease_until > statement_timestamp()
		then ceil(extract(epoch from p.lease_until - statement_timestamp()) * 1000)::bigint
		else 0 end as lease_left_ms,
	cardinality(p.ticks) - 1 as windows,
	p.written_elsewhere as elsewhere, left(s.identity::text, 8) as identity,
	to_char(p.paused_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as paused_at, a.url
from outbox.progress p join outbox.publisher s on s.name = p.publisher
left join outbox.process a on a.name = p.owner
where p.n is not null order by p.publisher, p.shard
