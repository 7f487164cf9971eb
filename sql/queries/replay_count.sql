-- The rows of a filter by topic, and the snapshot that sees them: names after a colon are inserted as literals, so
-- that the planner knows which conditions are always true. :from_id :to_id :from_at :to_at (without it) :any_topic
-- :topic :any_key :key :any_event :event; :any_state, or the publisher's state from verify_publisher.sql: :shards
-- :acked :windows :counted. min and max beside count(*) cannot tempt the planner to walk the index on id.
select m.topic::text, count(*) as rows, min(m.id) as low_id, max(m.id) as high_id,
	coalesce(max(m.partition::int), -1) as partition,
	(extract(epoch from min(m.created_at)) * 1000)::bigint as oldest_ms,
	(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
	pg_current_snapshot()::text as snapshot
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
group by m.topic order by m.topic
