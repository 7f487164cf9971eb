-- A page of a replay, as one script: names after a colon are inserted as literals, since COPY takes no
-- parameters. :replay :nonce :snapshot :rows and those of replay_count.sql. :from_id is behind the last
-- acknowledged or sent row, and :to_id is the largest id at the start; the index on id is scanned only
-- between the two. The settings keep a table that was never analyzed from being read whole for every page.
set local statement_timeout = 0;
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
do $$ begin perform outbox.replay_guard(:replay, :nonce); end $$;
copy (
	select m.id, m.created_at, m.event_id, m.topic, m.key, m.payload, m.headers, m.partition,
		m.deliver_at, m.key_bytes, m.payload_bytes
	from outbox.message m
	where m.id >= :from_id and m.id <= :to_id
		and m.created_at >= :from_at::timestamptz and m.created_at < :to_at::timestamptz
		and (:any_topic or m.topic = :topic) and (:any_key or outbox.published_bytes(m.key, m.key_bytes) = :key::bytea)
		and (:any_event or m.event_id = :event::uuid)
		and (:any_state or pg_visible_in_snapshot(m.txid,
				(:acked::pg_snapshot[])[outbox.bucket_shard(m.bucket, :shards) + 1])
			or (m.id <= (:counted::bigint[])[outbox.bucket_shard(m.bucket, :shards) + 1]
				and pg_visible_in_snapshot(m.txid,
					(:windows::pg_snapshot[])[outbox.bucket_shard(m.bucket, :shards) + 1])))
		and pg_visible_in_snapshot(m.txid, :snapshot::pg_snapshot)
	order by m.id fetch first :rows rows with ties
) to stdout (format binary)
