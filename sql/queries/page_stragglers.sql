-- page.sql with the rows of :stragglers (xids that were in progress at the tick before and are visible
-- in this one) merged in by id. They come from scans of their own, so that one old id does not make the
-- pages walk through everything already published.
set local statement_timeout = :limit;
set local lock_timeout = 0;
set local jit = off;
set local max_parallel_workers_per_gather = 0;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
do $$ begin perform outbox.window_guard(:publisher, :shard, :n, :nonce); end $$;
copy (
	select p.id, p.created_at, p.event_id, nullif(p.topic, :topic), p.key, case when not :withheld then p.payload end,
		case when not :withheld then p.headers end, p.partition, p.deliver_at, p.key_bytes,
		case when not :withheld then p.payload_bytes end
	from (
		(select m.* from outbox.message m
		where m.id >= :from_id and m.id <= :to_id
			and case when m.txid < :low_xid::xid8 then false when m.txid < :sure_xid::xid8 then true
				else pg_visible_in_snapshot(m.txid, :upto::pg_snapshot) end
			and m.created_at >= coalesce(
				(select s.start_at from outbox.publisher s where s.name = :publisher), '-infinity')
			and (:shards = 1 or m.bucket >= outbox.first_bucket(:shard, :shards)
			and m.bucket < outbox.first_bucket(:shard + 1, :shards))
		order by m.id fetch first :rows rows with ties)
		union all
		(select s.* from unnest(:stragglers::xid8[]) x (txid) cross join lateral (
			select m.* from outbox.message m
			where m.txid = x.txid and m.id > :after and m.id <= :upto_id
				and m.created_at >= coalesce(
					(select s.start_at from outbox.publisher s where s.name = :publisher), '-infinity')
				and (:shards = 1 or m.bucket >= outbox.first_bucket(:shard, :shards)
			and m.bucket < outbox.first_bucket(:shard + 1, :shards))
			order by m.id fetch first :rows rows with ties) s
		order by s.id fetch first :rows rows with ties)
	) p order by p.id fetch first :rows rows with ties
) to stdout (format binary)
