-- Rows in the order of id, and whether the publisher's log says that they are published, as one script: names
-- after a colon are put in as literals, since COPY takes no parameters. :acked :windows :acked_ids of
-- verify_publisher.sql, as :start, :start_at and :identity_since; :count of the publisher's shards; :after id; :most rows; created in
-- [:from_at, :to_at). A row is acknowledged and parked, or scheduled, in one transaction, and leaves
-- outbox.parked or outbox.scheduled only when it is published: an acknowledged row that is not found there is
-- published. The lock comes before the snapshot, so that rows which upkeep moves are seen once.
set local statement_timeout = 0;
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
lock table outbox.message in access share mode;
copy (
	select m.as_id, m.event_id, m.topic, outbox.published_bytes(m.key, m.key_bytes),
		outbox.published_bytes(m.payload, m.payload_bytes), m.headers::text,
		pg_visible_in_snapshot(m.txid, :start::pg_snapshot)
			or m.created_at < :start_at::timestamptz,
		pg_visible_in_snapshot(m.txid, (:acked::pg_snapshot[])[s.place])
			or (m.id <= (:acked_ids::bigint[])[s.place]
				and pg_visible_in_snapshot(m.txid, (:windows::pg_snapshot[])[s.place])),
		exists (select from outbox.parked p
				where p.publisher = :publisher and p.id = m.id and p.event_id = m.event_id)
			or exists (select from outbox.parked p where p.publisher = :publisher and p.was_id = m.id
				and p.was_id is not null and p.event_id = m.event_id),
		m.deliver_at is not null and (
			exists (select from outbox.scheduled d
				where d.publisher = :publisher and d.id = m.id and d.event_id = m.event_id)
			or exists (select from outbox.scheduled d where d.publisher = :publisher and d.was_id = m.id
				and d.was_id is not null and d.event_id = m.event_id)),
		m.created_at < :identity_since::timestamptz
	from (
		(select m.*, m.id as as_id from outbox.message m
		where m.id > :after and m.created_at >= :from_at::timestamptz
			and (m.created_at < :to_at::timestamptz or :to_at::timestamptz = 'infinity')
			and not exists (select from outbox.renumbered n
				where n.publisher = :publisher and n.was_id = m.id and n.event_id = m.event_id)
		order by m.id fetch first :most rows with ties)
		union all
		-- their positions have other ids
		(select m.*, n.id from outbox.renumbered n
		join outbox.message m on m.id = n.was_id and m.created_at = n.created_at
		where n.publisher = :publisher and n.id > :after and m.created_at >= :from_at::timestamptz
			and (m.created_at < :to_at::timestamptz or :to_at::timestamptz = 'infinity')
		order by n.id fetch first :most rows with ties)
	) m
	cross join lateral (select outbox.bucket_shard(m.bucket, :count) + 1) s (place)
	order by m.as_id fetch first :most rows with ties
) to stdout (format binary)
