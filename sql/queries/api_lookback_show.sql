-- All data about an id except the payload, as JSON; null: none. $1 type text, $2 id text. A check_url is
-- shown without its query, which may hold a secret.
with known as materialized (
	select l.kind, l.prepared_at, l.section, l.source_partition, l.source_offset, l.topic, l.key,
		l.check_service, l.check_url, l.check_at, l.expires_at, l.decision, l.source, l.decided_at,
		l.decided_by, l.reason, l.event_id, l.unique_key, l.within, l.while_pending, l.duplicate
	from outbox.lookback l
	where l.biz_type = $1::text and l.biz_id = $2::text
	order by l.prepared_at limit 100
), prepares as materialized (
	select p.prepared_at, case when d.duplicate then 'duplicate' when d.decision = 'commit' then 'committed'
			when d.decision = 'rollback' then 'rolled_back' else coalesce(o.state, 'undecided') end as state,
		jsonb_build_object('prepared_at', p.prepared_at, 'section', p.section,
			'source', jsonb_build_object('partition', p.source_partition, 'offset', p.source_offset),
			'topic', p.topic, 'key_hex', encode(p.key, 'hex'), 'check_service', p.check_service,
			'check_url', regexp_replace(p.check_url, '\?.*', '?...'), 'check_at', p.check_at,
			'expires_at', p.expires_at, 'event_id', p.event_id,
			'unique', case when p.unique_key is not null then jsonb_build_object('unique_key', p.unique_key,
				'within_seconds', extract(epoch from p.within), 'while_pending', p.while_pending) end,
			'decision', case when d.decision is not null then jsonb_build_object(
				'decision', d.decision, 'source', d.source, 'at', d.decided_at,
				'by', d.decided_by, 'reason', d.reason, 'event_id', d.event_id,
				'duplicate', d.duplicate is not null) end,
			'overdue', case when o.state is not null then jsonb_build_object(
				'state', o.state, 'since', o.overdue_at, 'attempts', o.attempts,
				'pendings', o.pendings, 'next_check', o.next_check,
				'claimed', o.claim is not null, 'last_result', o.last_result,
				'last_error', o.last_error, 'last_at', o.last_at) end) as shown
	from known p
	left join known d on d.kind = 'decision' and d.prepared_at = p.prepared_at
	left join outbox.lookback_overdue o on o.biz_type = $1::text and o.biz_id = $2::text
		and o.prepared_at = p.prepared_at
	where p.kind = 'prepare'
), conflicts as materialized (
	select c.at, c.id, jsonb_build_object('at', c.at, 'kept', c.kept, 'refused', c.refused,
		'source', c.source, 'who', c.who, 'prepared_at', c.prepared_at) as shown
	from outbox.lookback_conflict c where c.biz_type = $1::text and c.biz_id = $2::text
	order by c.id desc limit 100
)
select jsonb_build_object('biz_type', $1::text, 'biz_id', $2::text,
	'state', coalesce((select p.state from prepares p order by p.prepared_at limit 1), 'tombstone'),
	'prepares', coalesce((select jsonb_agg(p.shown order by p.prepared_at) from prepares p), '[]'),
	'tombstones', coalesce((select jsonb_agg(jsonb_build_object('decision', t.decision,
			'at', t.prepared_at, 'source', jsonb_build_object('partition', t.source_partition,
				'offset', t.source_offset)) order by t.prepared_at)
		from known t where t.kind = 'tombstone'), '[]'),
	'conflicts', coalesce((select jsonb_agg(c.shown order by c.id) from conflicts c), '[]'))::text
where exists (select from known)
