-- All rows of the journal about an id, without the payload, which not every reader may see: prepares with
-- their decisions, and decisions that came before them (tombstones). $1 type text, $2 id text.
select p.biz_type, p.biz_id, case when p.kind = 'tombstone' then 'tombstone'
		when d.duplicate then 'duplicate' when d.decision = 'commit' then 'committed' when d.decision = 'rollback' then 'rolled back'
		else coalesce(o.state, 'undecided') end as state,
	p.section,
	to_char(p.prepared_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as prepared_at,
	coalesce(o.check_service, p.check_service) as check_service,
	coalesce(o.check_url, p.check_url) as check_url, coalesce(o.attempts, 0) as attempts,
	coalesce(o.pendings, 0) as pendings,
	to_char(case when o.state = 'overdue' then o.next_check
		when o.state is null and d.decision is null then p.check_at end at time zone 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as next_at,
	to_char(coalesce(o.expires_at, p.expires_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
	o.last_result, o.last_error,
	to_char(o.last_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as last_at,
	p.prepared_at::text as place, p.source_partition, p.source_offset, p.topic,
	encode(p.key, 'hex') as key, p.headers,
	to_char(p.check_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as check_at,
	to_char(o.overdue_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as overdue_at,
	to_char(case when o.claim is not null then o.next_check end at time zone 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as claimed_until,
	p.event_id, p.decision as told, d.decision, d.source,
	to_char(d.decided_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as decided_at,
	d.decided_by, d.reason, d.source_partition as decision_partition, d.source_offset as decision_offset,
	d.txid::text as decision_txid, p.unique_key, p.within::text as within, p.while_pending,
	case when d.duplicate then d.event_id end as duplicate_of, has_column_privilege('outbox.lookback', 'payload', 'select') as may_read
from outbox.lookback p
left join lateral (
	select d.decision, d.source, d.decided_at, d.decided_by, d.reason, d.source_partition, d.source_offset,
		d.txid, d.duplicate, d.event_id
	from outbox.lookback d where d.biz_type = p.biz_type and d.biz_id = p.biz_id
		and d.prepared_at = p.prepared_at and d.kind = 'decision' limit 1) d on p.kind = 'prepare'
left join outbox.lookback_overdue o on o.biz_type = p.biz_type and o.biz_id = p.biz_id
	and o.prepared_at = p.prepared_at and p.kind = 'prepare'
where p.biz_type = $1::text and p.biz_id = $2::text and p.kind in ('prepare', 'tombstone')
order by p.prepared_at limit 100
