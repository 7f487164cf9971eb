-- A page of a window, as one script: names after a colon are put in as literals, since COPY takes no
-- parameters. :publisher :shard :shards :n :nonce; the bounds of the window :low_xid :sure_xid :upto
-- and ids :from_id to :to_id; :rows at most, within :limit in ms; :withheld: without what they hold.
-- The settings keep a table that was never analyzed from being read whole for every page, and a page of
-- one shard of several from starting parallel workers of its own, which costs more than the page.
-- Rows that share an id come with one page, since the next one begins behind it.
-- The topic of a row is null if it is :topic, the topic of the last row before: to send it costs as much as a test of
-- all other conditions.
set local statement_timeout = :limit;
set local lock_timeout = 0;
set local jit = off;
set local max_parallel_workers_per_gather = 0;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
do $$ begin perform outbox.window_guard(:publisher, :shard, :n, :nonce); end $$;
copy (
	select m.id, m.created_at, m.event_id, nullif(m.topic, :topic), m.key, case when not :withheld then m.payload end,
		case when not :withheld then m.headers end, m.partition, m.deliver_at, m.key_bytes,
		case when not :withheld then m.payload_bytes end
	from outbox.message m
	where m.id >= :from_id and m.id <= :to_id
		and case when m.txid < :low_xid::xid8 then false when m.txid < :sure_xid::xid8 then true
			else pg_visible_in_snapshot(m.txid, :upto::pg_snapshot) end
		and m.created_at >= coalesce(
			(select s.start_at from outbox.publisher s where s.name = :publisher), '-infinity')
		and (:shards = 1 or m.bucket >= outbox.first_bucket(:shard, :shards)
			and m.bucket < outbox.first_bucket(:shard + 1, :shards))
	order by m.id fetch first :rows rows with ties
) to stdout (format binary)
