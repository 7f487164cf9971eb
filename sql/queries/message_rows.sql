-- The messages with an id, or their copies in outbox.parked and outbox.scheduled once their partition was dropped: these
-- have no txid. Without payloads, which not every reader may see. $1 id bigint, $2 created at timestamptz, null: any.
select m.id, m.created_at::text, m.event_id, m.topic, encode(m.key, 'hex') as key, m.partition,
	to_char(m.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as created,
	to_char(m.deliver_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as deliver_at,
	m.txid, m.bucket, (extract(epoch from m.created_at) * 1000)::bigint as created_ms
from (
	select m.id, m.created_at, m.event_id, m.topic, outbox.published_bytes(m.key, m.key_bytes) as key, m.partition,
		m.deliver_at, m.txid, m.bucket
	from outbox.message m
	where m.id = $1::bigint and ($2::timestamptz is null or m.created_at = $2::timestamptz)
	union all
	select distinct on (k.id, k.created_at) k.id, k.created_at, k.event_id, k.topic, k.key, k.partition,
		k.deliver_at, null::xid8, outbox.bucket_of(null, k.key)
	from (
		select coalesce(p.was_id, p.id) as id, p.created_at, p.event_id, p.topic, p.key, p.partition,
			null::timestamptz as deliver_at
		from outbox.parked p where p.id = $1::bigint and p.was_id is null or p.was_id = $1::bigint and p.was_id is not null
		union all
		select coalesce(s.was_id, s.id), s.created_at, s.event_id, s.topic, s.key, s.partition, s.deliver_at
		from outbox.scheduled s where s.id = $1::bigint and s.was_id is null or s.was_id = $1::bigint and s.was_id is not null
	) k
	where ($2::timestamptz is null or k.created_at = $2::timestamptz)
		and not exists (select from outbox.message m where m.id = k.id and m.created_at = k.created_at)
) m
order by m.created_at limit 10
