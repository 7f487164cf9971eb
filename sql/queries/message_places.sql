-- Where a message is, by publisher: the state, and every stage that the database knows. $1 id bigint, $2 created at
-- timestamptz, $3 event id uuid, $4 topic text, $5 key bytea, $6 txid xid8 (null: its row was dropped), $7 bucket smallint
select p.publisher, p.shard,
	case when k.id is not null then 'parked'
		when d.id is not null then 'scheduled'
		when p.written_elsewhere or p.n is null then 'elsewhere'
		when $2::timestamptz < p.start_at or pg_visible_in_snapshot($6::xid8, p.start) then 'before_start'
		when x.id is not null then 'skipped'
		when $6::xid8 is null then 'dropped'
		when w.stage = 'settled' then 'published'
		when w.stage = 'open' then 'in_window'
		else 'waiting' end as state,
	to_char(greatest(b.created_at, p.start_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as begins,
	w.tick, w.opened_n, to_char(w.opened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as opened_at,
	w.settled_n, to_char(w.settled_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as settled_at,
	to_char(w.log_from at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as log_from,
	coalesce(k.id, d.id, i.id) as kept_id,
	k.state as parked_state, k.error, k.attempts, case when k.state in ('waiting', 'free')
		then to_char(k.next_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as next_at,
	to_char(k.parked_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as parked_at,
	nullif(k.stalled, -1) as stalled, r.verb as request, r.id as request_id,
	h.id as head_id, h.state as head_state, h.error as head_error,
	to_char(d.deliver_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as due_at,
	coalesce(k.id, d.id) = any (p.listed_ids) as listed, p.listed_tick,
	x.id as skip_id, to_char(x.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as skipped_at,
	x.who as skipped_by, x.reason as skip_reason,
	-- a new topic is in the log before it is in its table
	coalesce((select (u.destinations -> $4::text ->> 0)::int from outbox.log u
			where u.publisher = p.publisher and u.shard = p.shard and u.n > p.folded and u.destinations ? $4::text
			order by u.n desc limit 1),
		(select t.partitions from outbox.destination t
			where t.publisher = p.publisher and t.shard = p.shard and t.topic = $4::text)) as partitions,
	-- null: it was settled before the log begins, so that no log row brackets its record
	case when w.stage = 'open' then p.n + 1 else w.settled_n end as bracket_n,
	(select jsonb_agg(jsonb_build_object('id', y.id::text, 'created_at',
			to_char(y.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'topic', coalesce(y.target, $4::text),
			'state', case when y.last_id >= $1::bigint then 'sent' when y.state = 'running' then 'waiting' else 'not_sent' end)
			order by y.id desc)
		from (select v.* from (select * from outbox.replay v where v.publisher = p.publisher
				order by v.id desc limit 1000) v
			where v.system_identifier = p.system_identifier and outbox.replay_has(v, $1::bigint,
				$2::timestamptz, $3::uuid, $4::text, $5::bytea, $6::xid8, $7::smallint)
			order by v.id desc limit 20) y) as replays
from outbox.progress p
join outbox.publisher b on b.name = p.publisher
left join lateral (select n.id from outbox.renumbered n
	where n.publisher = p.publisher and n.was_id = $1::bigint and n.event_id = $3::uuid limit 1) n on true
cross join lateral (select coalesce(n.id, $1::bigint) as id) i
left join lateral outbox.message_windows(p.publisher, p.shard, $6::xid8, $1::bigint) w on $6::xid8 is not null
left join lateral (select q.publisher, q.shard, q.id, q.topic, q.key, q.state, q.error, q.attempts, q.next_at,
		q.parked_at, q.stalled, q.digest, q.txid
	from outbox.parked q
	where q.id = i.id and q.publisher = p.publisher and q.event_id = $3::uuid) k on true
left join lateral (select q.id, q.deliver_at from outbox.scheduled q
	where q.id = i.id and q.publisher = p.publisher and q.event_id = $3::uuid) d on true
left join outbox.parked_request r on r.publisher = p.publisher and r.shard = p.shard
	and r.id = outbox.parked_request_of(p.publisher, p.shard, k.id, k.topic, k.key, k.error, k.parked_at, k.state, k.txid)
left join lateral (select q.id, q.state, q.error from outbox.parked q
	where q.publisher = k.publisher and q.shard = k.shard and q.digest = k.digest
		and q.topic = k.topic and q.key = k.key order by q.id limit 1) h on k.state = 'behind'
left join lateral (select a.id, a.at, coalesce(a.caller, a.who) as who, a.reason
	from outbox.skipped s join outbox.audit a on a.id = s.request_id
	where s.publisher = p.publisher and s.ids @> array[i.id] and a.at >= $2::timestamptz
	order by a.id desc limit 1) x on true
where p.shard = outbox.bucket_shard($7::smallint, p.shards)
order by p.publisher
