-- The newest log row of each shard, as people ask for it.
select p.slot, p.shard, p.shards, p.split_to, p.n, p.epoch, p.owner,
	case when p.lease_until > clock_timestamp()
		then ceil(extract(epoch from p.lease_until - clock_timestamp()) * 1000)::bigint
		else 0 end as lease_left_ms,
	cardinality(p.ticks) - 1 as windows
from outbox.progress p where p.n is not null order by p.slot, p.shard
