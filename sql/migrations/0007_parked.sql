-- oldest-program: 0.1.0
--
-- Messages that Kafka refuses for good, and those of the same topic and key behind them. A row is a
-- full copy: the message's own partition may go. Rows come and go in the transaction of the log row
-- that notes it (outbox.tick), so only a shard's owner changes them; operators record requests.
--
-- The rows of one topic and key are a queue in the order of ids. Its head is the one that was refused:
--   waiting  tried again, alone, at next_at
--   dead     tried max_attempts times, or it kills the relay: only an operator moves it
--   stalled  its partition acknowledged nothing, or its topic was missing: free once it is there again
--   free     nothing is known against it: it goes as soon as possible, with those behind it
--   behind   not the head
-- A row without a key has no order: it is the head of a queue of its own.
--
-- A row is listed, or skipped, only when the window it came from is published to its end. Before, an owner
-- that takes over reads that window again and parks the row once more, which changes nothing while it
-- stands here.

-- The queue that a topic and a key name: the first 64 bits of a SHA-256. An index on the key itself would
-- refuse a long one. Queries compare the topic and the key after the digest, so that two queues of one digest
-- cost time and nothing else.
create function outbox.parked_digest(topic text, key bytea) returns bigint
language plpgsql immutable strict parallel safe as $$
begin
	return ('x' || encode(substr(sha256(convert_to(topic, 'UTF8') || '\x00' || key), 1, 8), 'hex'))::bit(64)::bigint;
end
$$;
comment on function outbox.parked_digest(text, bytea) is
	'The first 64 bits of the SHA-256 of the topic, a zero byte and the key; null without a key.';

create table outbox.parked (
	slot       text collate "C" not null,
	shard      int         not null,
	id         bigint      not null, -- of the message, as are the next seven
	created_at timestamptz not null,
	event_id   uuid        not null,
	topic      text collate "C" not null,
	key        bytea,
	payload    bytea,
	headers    jsonb,
	partition  int,
	tick       bigint      not null, -- the window it came from
	state      text        not null
		constraint state_of_a_parked_row check (state in ('waiting', 'dead', 'stalled', 'free', 'behind')),
	error      text,                 -- why it was refused; null: it never was
	stalled    int,                  -- the partition that took nothing; -1: the topic was missing
	attempts   int         not null, -- refusals
	next_at    timestamptz not null,
	parked_at  timestamptz not null default clock_timestamp(),
	request    text constraint request_is_retry_or_skip check (request in ('retry', 'skip')),
	request_id bigint,               -- in outbox.audit
	digest     bigint generated always as (outbox.parked_digest(topic, key)) stored,
	primary key (slot, id)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

create index parked_queue on outbox.parked (slot, shard, digest, id) where digest is not null;
create index parked_due on outbox.parked (slot, shard, next_at) where state in ('waiting', 'free');
create index parked_stalled on outbox.parked (slot, shard, topic, stalled) where stalled is not null;
create index parked_requests on outbox.parked (slot, shard) where request is not null;

comment on table outbox.parked is 'Messages that Kafka refused, and those of their keys behind them. '
	'See outbox-relay parked.';

-- What operators did, and why.
create table outbox.audit (
	id      bigint      generated always as identity (cache 1) primary key,
	at      timestamptz not null default clock_timestamp(),
	who     text        not null default session_user,
	verb    text        not null,
	slot    text collate "C",
	target  jsonb       not null, -- what it was about
	reason  text        not null constraint audit_has_a_reason check (reason <> '')
);

-- A request changes this number of the slot, which the owner sees with every look.
alter table outbox.slot add requests bigint not null default 0;

-- A queue, the rows of a topic and key, goes by id, as a listed window does and as its rows were written. One
-- that waited for its deliver_at may come to it in front of others.
--
-- Of each of these queues that has no head left the first row goes, with those behind it.
create function outbox.parked_free(of_slot text, of_shard int, topics text[], keys bytea[]) returns void
language sql volatile as $$
	update outbox.parked p set state = 'free', next_at = clock_timestamp()
	from unnest(topics, keys) k (topic, key) cross join lateral (
		select q.id, q.state from outbox.parked q
		where q.slot = of_slot and q.shard = of_shard
			and q.digest = outbox.parked_digest(k.topic, k.key)
			and q.topic = k.topic and q.key = k.key
		order by q.id limit 1) first
	where p.slot = of_slot and p.id = first.id and first.state = 'behind'
$$;

-- Notes refusals and those behind them: {"rows": [[id, created at in µs since 1970, error or null, tick], …],
-- "first_ms", "max_ms": of the back-off, "max_attempts"}. A fifth value of a row is the partition that stalls,
-- a sixth, true: it is not to be tried again.
-- "recovered": [[topic, partition], …] do so no more. A row that is parked already and has no
-- error stays as it is; but one that was free is behind another now. One of outbox.scheduled leaves it.
create function outbox.park(of_slot text, of_shard int, parks jsonb) returns void
language plpgsql volatile as $$
declare
	first_ms float8 := (parks ->> 'first_ms')::float8;
	max_ms float8 := (parks ->> 'max_ms')::float8;
	max_attempts int := (parks ->> 'max_attempts')::int;
begin
	-- capped exponential, between half of it and the whole
	with noted as (
		select (r ->> 0)::bigint as id, r ->> 2 as error, (r ->> 4)::int as stalled,
			(r ->> 5)::boolean as dead
		from jsonb_array_elements(parks -> 'rows') r
	)
	update outbox.parked p set error = noted.error, stalled = noted.stalled,
		attempts = p.attempts + case when noted.stalled is null then 1 else 0 end,
		state = case when noted.stalled is not null then 'stalled'
			when noted.dead or p.attempts + 1 >= max_attempts then 'dead' else 'waiting' end,
		next_at = clock_timestamp() + (0.5 + random() / 2) * interval '1 ms'
			* least(max_ms, first_ms * 2 ^ least(p.attempts, 40))
	from noted where p.slot = of_slot and p.id = noted.id and noted.error is not null;
	update outbox.parked p set state = 'behind' from jsonb_array_elements(parks -> 'rows') r
	where p.slot = of_slot and p.id = (r ->> 0)::bigint and r ->> 2 is null and p.state = 'free';

	with noted as (
		select (r.value ->> 0)::bigint as id, r.value ->> 2 as error, r.ordinality as place,
			(r.value ->> 3)::bigint as tick, (r.value ->> 4)::int as stalled,
			(r.value ->> 5)::boolean as dead,
			timestamptz 'epoch' + (r.value ->> 1)::bigint * interval '1 us' as created_at
		from jsonb_array_elements(parks -> 'rows') with ordinality r
	)
	insert into outbox.parked (slot, shard, id, created_at, event_id, topic, key, payload, headers,
		partition, tick, state, error, stalled, attempts, next_at)
	select of_slot, of_shard, m.id, m.created_at, m.event_id, m.topic, m.key, m.payload, m.headers,
		m.partition, noted.tick, case when noted.error is null then 'behind'
			when noted.stalled is not null then 'stalled'
			when noted.dead or max_attempts <= 1 then 'dead' else 'waiting' end,
		noted.error, noted.stalled,
		case when noted.error is null or noted.stalled is not null then 0 else 1 end,
		clock_timestamp() + (0.5 + random() / 2) * interval '1 ms' * least(max_ms, first_ms)
	from noted cross join lateral (
		select s.id, s.created_at, s.event_id, s.topic, s.key, s.payload, s.headers, s.partition
		from outbox.scheduled s where s.slot = of_slot and s.id = noted.id
		union all
		select m.id, m.created_at, m.event_id, m.topic, m.key, m.payload, m.headers, m.partition
		from outbox.message m where m.id = noted.id and m.created_at = noted.created_at
		limit 1) m
	order by noted.place
	on conflict (slot, id) do nothing;
	delete from outbox.scheduled s using jsonb_array_elements(parks -> 'rows') r
		where s.slot = of_slot and s.id = (r ->> 0)::bigint;

	update outbox.parked p set state = 'free', next_at = clock_timestamp()
		from jsonb_array_elements(parks -> 'recovered') r
		where p.slot = of_slot and p.shard = of_shard and p.state = 'stalled'
			and p.topic = r ->> 0 and p.stalled = (r ->> 1)::int;

	-- their head may have gone while these were on their way here
	perform outbox.parked_free(of_slot, of_shard, array_agg(q.topic), array_agg(q.key)) from (
		select distinct p.topic, p.key from jsonb_array_elements(parks -> 'rows') r
		join outbox.parked p on p.slot = of_slot and p.id = (r ->> 0)::bigint and p.state = 'behind'
	) q;
end
$$;

-- Deletes rows that were published, or are skipped, from outbox.parked and outbox.scheduled. Returns the
-- queues that are empty now.
create function outbox.unpark(of_slot text, of_shard int, ids bigint[])
returns table (topic text, key bytea) language plpgsql volatile as $$
#variable_conflict use_column
declare
	topics text[];
	keys bytea[];
begin
	delete from outbox.scheduled s where s.slot = of_slot and s.id = any (ids);
	with gone as (
		delete from outbox.parked p where p.slot = of_slot and p.id = any (ids)
		returning p.topic, p.key
	)
	select array_agg(q.topic), array_agg(q.key) into topics, keys
		from (select distinct gone.topic, gone.key from gone where gone.key is not null) q;
	if topics is null then
		return;
	end if;
	perform outbox.parked_free(of_slot, of_shard, topics, keys);
	return query select k.topic, k.key from unnest(topics, keys) k (topic, key)
		where not exists (select from outbox.parked p
			where p.slot = of_slot and p.shard = of_shard
				and p.digest = outbox.parked_digest(k.topic, k.key)
				and p.topic = k.topic and p.key = k.key);
end
$$;

-- What operators asked for; no listed window is open. Returns the queues that are empty now.
create function outbox.parked_requests(of_slot text, of_shard int, first_tick bigint)
returns table (topic text, key bytea) language plpgsql volatile as $$
#variable_conflict use_column
begin
	update outbox.parked p set request = null, state = 'waiting', attempts = 0,
		next_at = clock_timestamp()
	where p.slot = of_slot and p.shard = of_shard and p.request = 'retry';
	return query select u.topic, u.key from outbox.unpark(of_slot, of_shard, (
		select array_agg(p.id) from outbox.parked p
		where p.slot = of_slot and p.shard = of_shard and p.request = 'skip'
			and p.tick <= first_tick)) u;
end
$$;

-- The ids of the next listed window: due heads alone, free ones with those behind them, up to the next that
-- is more than that; null: none.
create function outbox.parked_next(
	of_slot text, of_shard int, first_tick bigint, max_rows int, max_bytes bigint)
returns bigint[] language sql volatile as $$
	with heads as (
		select p.id, p.topic, p.key, p.digest, p.state from outbox.parked p
		where p.slot = of_slot and p.shard = of_shard and p.state in ('waiting', 'free')
			-- as a query of its own the time is a bound of the index scan
			and p.next_at <= (select clock_timestamp()) and p.tick <= first_tick
		order by p.next_at limit max_rows
	), rows as (
		select q.id, sum(coalesce(octet_length(q.payload), 0) + 1000) over (order by q.id) as bytes
		from heads h cross join lateral (
			select p.id, p.payload from outbox.parked p where p.slot = of_slot and p.id = h.id
			union all
			select f.id, f.payload from (
				select p.id, p.payload, bool_and(p.state = 'behind' and p.tick <= first_tick)
					over (order by p.id) as follows
				from outbox.parked p
				where h.state = 'free' and p.slot = of_slot and p.shard = of_shard
					and p.digest = h.digest and p.topic = h.topic and p.key = h.key
					and p.id > h.id
				order by p.id limit max_rows) f
			where f.follows) q
		order by q.id limit max_rows
	)
	select array_agg(r.id order by r.id) from rows r
	where r.bytes <= max_bytes or r.id = (select min(id) from rows)
$$;

-- Milliseconds until a head is due, or its window is looked at again; null: none ever. Of the heads only
-- the one that is due first is looked at: all of many would be a long look.
create function outbox.parked_wait(of_slot text, of_shard int, first_tick bigint) returns bigint
language sql volatile as $$
	select least((
		select greatest(0, ceil(extract(epoch from case when p.tick <= first_tick then p.next_at
			else greatest(p.next_at, clock_timestamp() + interval '50 ms') end
			- clock_timestamp()) * 1000))::bigint
		from outbox.parked p
		where p.slot = of_slot and p.shard = of_shard and p.state in ('waiting', 'free')
		order by p.next_at limit 1), (
		select 50 from outbox.parked p
		where p.slot = of_slot and p.shard = of_shard and p.request is not null limit 1))
$$;

-- Is a row among those that an operator chose? {"ids": [1, 2], "from_id", "to_id", "topic",
-- "key": "\\x6b31", "error": a part of it, "from", "to": of parked_at, without the end, "state"}; what
-- is not named does not matter. One expression, so that the planner sees through it.
create function outbox.parked_is(id bigint, topic text, key bytea, error text, parked_at timestamptz,
	state text, chosen jsonb) returns boolean language sql stable as $$
	select id >= coalesce((chosen ->> 'from_id')::bigint, 0)
		and id <= coalesce((chosen ->> 'to_id')::bigint, 9223372036854775807)
		and (chosen -> 'ids' is null or chosen -> 'ids' @> to_jsonb(id))
		and (chosen ->> 'topic' is null or topic = chosen ->> 'topic')
		and (chosen ->> 'key' is null or key = (chosen ->> 'key')::bytea)
		and (chosen ->> 'error' is null or position(chosen ->> 'error' in error) > 0)
		and (chosen ->> 'from' is null or parked_at >= (chosen ->> 'from')::timestamptz)
		and (chosen ->> 'to' is null or parked_at < (chosen ->> 'to')::timestamptz)
		and (chosen ->> 'state' is null or state = chosen ->> 'state')
$$;

-- May it be asked for? Only heads are retried: one that is free goes anyway, one behind waits for its head.
create function outbox.parked_may(verb text, state text, request text) returns boolean
language sql immutable as $$
	select request is null and (verb = 'skip' or state in ('waiting', 'dead', 'stalled'))
$$;

-- Notes what an operator asks for: 'retry' or 'skip'. The owner of each row's shard carries it out. Rows
-- that may not be asked for, or that somebody changes at this moment, are left out; when `whole`, all of
-- the chosen rows are noted or none. Fails with OR002 when none is.
create function outbox.parked_request(of_slot text, new_verb text, chosen jsonb, new_reason text,
	whole boolean, out audit_id bigint, out noted bigint) language plpgsql volatile as $$
declare
	found_ids bigint[];
begin
	perform outbox.replay_durable();
	perform outbox.require_read_committed();
	-- comes first, so that of two operators the second sees what the first asked for
	update outbox.slot s set requests = s.requests + 1 where s.name = of_slot;
	if not found then
		raise exception 'slot % does not exist', of_slot;
	end if;
	-- waiting for the owner's rows, with others locked, could end in a deadlock with it
	select coalesce(array_agg(l.id), '{}') into found_ids from (
		select p.id from outbox.parked p
		where p.slot = of_slot and outbox.parked_may(new_verb, p.state, p.request)
			and outbox.parked_is(p.id, p.topic, p.key, p.error, p.parked_at, p.state, chosen)
		order by p.id for update skip locked) l;
	noted := cardinality(found_ids);
	if noted = 0 or (whole and noted < jsonb_array_length(chosen -> 'ids')) then
		raise exception 'rows may not be asked for, or are being changed' using errcode = 'OR002';
	end if;
	insert into outbox.audit (verb, slot, target, reason)
	values (new_verb, of_slot, jsonb_build_object('filter', chosen, 'rows', noted, 'ids', found_ids), new_reason)
	returning id into audit_id;
	update outbox.parked p set request = new_verb, request_id = audit_id
	from unnest(found_ids) f (id) where p.slot = of_slot and p.id = f.id;
end
$$;
