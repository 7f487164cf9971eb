-- oldest-program: 0.1.0
--
-- Messages that must not be delivered before their own time. When the window of such a row is published,
-- a full copy is stored here, whether it is due or not, because the message's own partition may be
-- dropped. It returns in a listed window once it is due, in the order of ids among all rows that are due
-- then. A row comes and goes in the transaction of the log row that notes it (outbox.tick).
--
-- A row is listed only when the window it came from is published to its end. Before that, an owner that
-- takes over reads that window again and stores the row once more, which changes nothing while the row
-- is here.

create table outbox.scheduled (
	publisher       text collate "C" not null,
	shard      int         not null,
	id         bigint      not null, -- the message's, as are the next eight
	created_at timestamptz not null,
	event_id   uuid        not null,
	topic      text collate "C" not null,
	key        bytea,
	payload    bytea,
	headers    json,
	partition  int,
	deliver_at timestamptz not null,
	tick       bigint      not null, -- the window of the row
	was_id     bigint, -- as in outbox.parked
	primary key (id, publisher) -- in this order, see outbox.parked
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- The due rows of all ids, of a region (2^22 ids) and of a block (2^12 ids). outbox.scheduled_walk says why.
-- Their conditions are true for every row, and keep other queries from these indexes: see outbox.parked.
-- Operators' lists are in the order of the first one: many rows may have one deliver_at, so it has the id as well.
create index scheduled_due on outbox.scheduled (publisher, shard, deliver_at, id) include (tick) where tick >= 0;
create index scheduled_regions on outbox.scheduled (publisher, shard, (id >> 22), deliver_at) include (id, tick)
	where (id >> 22) is not null;
create index scheduled_blocks on outbox.scheduled (publisher, shard, (id >> 12), deliver_at) include (id, tick)
	where (id >> 12) is not null;
create index scheduled_was on outbox.scheduled (was_id, publisher) where was_id is not null;

comment on table outbox.scheduled is 'Messages with a deliver_at that are not yet published. Each row is a full copy '
	'of its message.';
comment on column outbox.scheduled.publisher is 'Name of the publisher.';
comment on column outbox.scheduled.shard is 'Number of the shard.';
comment on column outbox.scheduled.id is 'Id of the message, or a new one if that id was taken (see was_id).';
comment on column outbox.scheduled.created_at is 'As in outbox.message.';
comment on column outbox.scheduled.event_id is 'As in outbox.message.';
comment on column outbox.scheduled.topic is 'As in outbox.message.';
comment on column outbox.scheduled.key is 'Published bytes of the key.';
comment on column outbox.scheduled.payload is 'Published bytes of the payload.';
comment on column outbox.scheduled.headers is 'As in outbox.message.';
comment on column outbox.scheduled.partition is 'As in outbox.message.';
comment on column outbox.scheduled.deliver_at is 'The message is not published before this time. An UPDATE moves it.';
comment on column outbox.scheduled.tick is 'Number of the window that the message came from.';
comment on column outbox.scheduled.was_id is 'Original id of the message, if the row got another one.';

-- Owners remember where a list ended (outbox.scheduled_next). An UPDATE by hand makes the
-- next look begin at the smallest id, and makes it come at once.
create function outbox.scheduled_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
	update outbox.publisher s set requests = s.requests + 1
		where s.name in (select c.publisher from changed c);
	return null;
end
$$;

create trigger scheduled_changed after update on outbox.scheduled
	referencing new table as changed for each statement execute function outbox.scheduled_changed();

-- The rows, with free ids if some have ids of other rows.
create function outbox.schedule_apart(of_publisher text, of_shard int, ids bigint[], rows jsonb) returns jsonb
language plpgsql volatile as $$
declare
	by_id jsonb := (select jsonb_object_agg(r ->> 0, r) from jsonb_array_elements(rows) r);
begin
	if outbox.kept_ids_meet(of_publisher, of_shard, ids, by_id) then
		return outbox.kept_rows(of_publisher, of_shard, rows);
	end if;
	return rows;
end
$$;

-- Notes rows: [[id, created at in us since 1970, tick], ...]; null: none. Returns `due` of the next
-- log row: a new row may have a smaller id than the one at which the last list ended.
create function outbox.schedule(of_publisher text, of_shard int, rows jsonb, due bigint[]) returns bigint[]
language plpgsql volatile as $$
#variable_conflict use_column
declare
	ids bigint[] := array(select (r ->> 0)::bigint from jsonb_array_elements(rows) r);
	least_id bigint; -- smallest id of the new rows that were due when the last list ended
	inserted bigint;
begin
	if cardinality(ids) = 0 then
		return due;
	end if;
	if exists (select from outbox.parked p where p.publisher = of_publisher and p.id = any (ids))
		or exists (select from outbox.parked p where p.publisher = of_publisher and p.was_id = any (ids)
			and p.was_id is not null)
		or exists (select from outbox.scheduled s where s.publisher = of_publisher and s.was_id = any (ids)
			and s.was_id is not null)
	then
		rows := outbox.schedule_apart(of_publisher, of_shard, ids, rows);
	end if;
	-- The insert leaves out rows with ids that the table has. Those of them that are other messages get new ids
	-- for the second pass.
	for attempt in 1 .. 2 loop
		with noted as (
			insert into outbox.scheduled (publisher, shard, id, created_at, event_id, topic, key, payload,
				headers, partition, deliver_at, tick, was_id)
			select of_publisher, of_shard, (r ->> 0)::bigint, m.created_at, m.event_id, m.topic, m.key, m.payload,
				m.headers, m.partition, m.deliver_at, (r ->> 2)::bigint, (r ->> 6)::bigint
			from jsonb_array_elements(rows) r cross join lateral (
				-- the limit keeps the planner from joining with all messages
				select m.created_at, m.event_id, m.topic, outbox.published_bytes(m.key, m.key_bytes) as key,
					outbox.published_bytes(m.payload, m.payload_bytes) as payload, m.headers, m.partition, m.deliver_at
				from outbox.message m where m.id = coalesce(r ->> 6, r ->> 0)::bigint
					and m.created_at = timestamptz 'epoch' + (r ->> 1)::bigint * interval '1 us'
				limit 1) m
			on conflict (id, publisher) do nothing
			returning id, deliver_at
		)
		select count(*), least(least_id, min(n.id) filter (
				where n.deliver_at <= timestamptz 'epoch' + due[2] * interval '1 us'))
			into inserted, least_id from noted n;
		exit when inserted = cardinality(ids);
		rows := outbox.schedule_apart(of_publisher, of_shard, ids, rows);
	end loop;
	return case when due is not null
		then array[least(due[1], least_id), due[2], due[3]] || due[4:] end;
end
$$;

-- The due rows with the smallest ids from `from_id` on, more than `enough` of them if there are as many.
-- blocked: the smallest id among the due rows whose window is still open; such rows are not listed.
-- upto: due rows with larger ids were not examined; null: there are none.
--
-- The indexes on blocks and regions of ids are a tree: the first row of a block in the index is the one
-- that is due first, so one probe tells whether any row of the block is due, however many are not. The
-- walk passes over regions, and over blocks of a region, of which no row is due. A region with few due
-- rows is read whole, so that it does not cost a probe for each of its blocks. Rows that were listed
-- leave dead index entries, which a long transaction anywhere keeps alive: hence the walk begins at the
-- block of `from_id` and reads no larger range in front of it. After a thousand regions without due rows
-- (four billion ids) the walk ends, and the next one continues there.
create function outbox.scheduled_walk(of_publisher text, of_shard int, first_tick bigint, due_at timestamptz,
	from_id bigint, enough int, out ids bigint[], out blocked bigint, out upto bigint)
language plpgsql volatile as $$
declare
	at_region bigint := case when from_id > 0 then from_id >> 22 else -1 end;
	at_block bigint := case when from_id > 0 then (from_id >> 12) - 1 end; -- null: the whole region is read
	part bigint[];
	part_blocked bigint;
	part_rows int;
	is_due boolean;
	waiting int := 0; -- rows that are blocked
begin
	ids := array[]::bigint[];
	loop
		if at_block is not null then
			with recursive step as (
				(select s.id >> 12 as block, s.deliver_at from outbox.scheduled s
				where s.publisher = of_publisher and s.shard = of_shard
					and s.id >> 12 > at_block and s.id >> 12 < at_region + 1 << 10
				order by s.id >> 12, s.deliver_at limit 1)
				union all
				select n.* from step cross join lateral (
					select s.id >> 12, s.deliver_at from outbox.scheduled s
					where s.publisher = of_publisher and s.shard = of_shard
						and s.id >> 12 > step.block and s.id >> 12 < at_region + 1 << 10
					order by s.id >> 12, s.deliver_at limit 1) n
				where step.deliver_at > due_at
			)
			select max(step.block) into at_block from step where step.deliver_at <= due_at;
			upto := (coalesce(at_block + 1, at_region + 1 << 10) << 12) - 1;
			continue when at_block is null;
			select array_agg(s.id order by s.id) filter (where s.tick <= first_tick),
				min(s.id) filter (where s.tick > first_tick), count(*)
				into part, part_blocked, part_rows
			from outbox.scheduled s
			where s.publisher = of_publisher and s.shard = of_shard and s.id >> 12 = at_block
				and s.deliver_at <= due_at and s.id >= from_id;
		else
			with recursive step as (
				(select s.id >> 22 as region, s.deliver_at, 1 as number from outbox.scheduled s
				where s.publisher = of_publisher and s.shard = of_shard and s.id >> 22 > at_region
				order by s.id >> 22, s.deliver_at limit 1)
				union all
				select n.*, step.number + 1 from step cross join lateral (
					select s.id >> 22, s.deliver_at from outbox.scheduled s
					where s.publisher = of_publisher and s.shard = of_shard and s.id >> 22 > step.region
					order by s.id >> 22, s.deliver_at limit 1) n
				where step.deliver_at > due_at and step.number < 1000
			)
			select step.region, step.deliver_at <= due_at into at_region, is_due from step
				order by step.number desc limit 1;
			upto := (at_region + 1 << 22) - 1;
			exit when is_due is not true; -- the end, or enough regions for one statement
			select array_agg(r.id order by r.id) filter (where r.tick <= first_tick),
				min(r.id) filter (where r.tick > first_tick), count(*)
				into part, part_blocked, part_rows
			from (
				select s.id, s.tick from outbox.scheduled s
				where s.publisher = of_publisher and s.shard = of_shard and s.id >> 22 = at_region
					and s.deliver_at <= due_at
				limit 4 * enough + 1) r;
			if part_rows > 4 * enough then
				at_block := (at_region << 10) - 1;
				continue;
			end if;
		end if;
		ids := ids || part;
		blocked := least(blocked, part_blocked);
		waiting := waiting + part_rows - coalesce(cardinality(part), 0);
		exit when cardinality(ids) > enough or waiting > 8 * enough;
	end loop;
end
$$;

-- The ids of the next listed window's scheduled rows: the due rows with the smallest ids; null: no row
-- is due.
--
-- `due`, of the log row, is where the last list ended: [id, us since 1970, the publisher's `requests`]. No row
-- that was due then has a smaller id, except rows of a listed window. So the next list has the
-- due rows from that id on and, among smaller ids, those that became due since: all of them, when they are
-- few; else the walk begins with the smallest id of all. The largest bigint: no row was left at all. null, or
-- another number of requests: nothing is known.
create function outbox.scheduled_next(of_publisher text, of_shard int, first_tick bigint, max_rows int,
	max_bytes bigint, of_requests bigint, inout due bigint[], out ids bigint[])
language plpgsql volatile as $$
declare
	now_us bigint := floor(extract(epoch from clock_timestamp()) * 1000000);
	now timestamptz := timestamptz 'epoch' + now_us * interval '1 us';
	many int := 8 * max_rows;
	from_id bigint := 9223372036854775807;
	since timestamptz := '-infinity';
	recent bigint[];
	recent_blocked bigint;
	recent_rows int;
	walk record;
	blocked bigint;
	rest bigint; -- the smallest due id that is not listed
begin
	if due[3] = of_requests then
		from_id := due[1];
		since := timestamptz 'epoch' + due[2] * interval '1 us';
	end if;
	select array_agg(d.id order by d.id) filter (where d.tick <= first_tick and d.id < from_id),
		min(d.id) filter (where d.tick > first_tick and d.id < from_id), count(*)
		into recent, recent_blocked, recent_rows
	from (
		select s.id, s.tick from outbox.scheduled s
		where s.publisher = of_publisher and s.shard = of_shard and s.deliver_at > since and s.deliver_at <= now
			and s.tick >= 0
		order by s.deliver_at limit many) d;
	if recent_rows = many then
		from_id := 0;
		recent := null;
		recent_blocked := null;
	end if;

	ids := coalesce(recent, '{}');
	rest := from_id;
	blocked := recent_blocked;
	if from_id < 9223372036854775807 and cardinality(ids) <= max_rows then
		select * into walk from outbox.scheduled_walk(of_publisher, of_shard, first_tick, now, from_id,
			max_rows - cardinality(ids));
		ids := ids || walk.ids;
		blocked := least(blocked, walk.blocked);
		rest := coalesce(walk.upto + 1, 9223372036854775807);
	end if;

	select array_agg(w.id order by w.id) into recent from (
		select s.id, row_number() over (order by s.id) as place,
			sum(coalesce(octet_length(s.payload), 0) + 1000) over (order by s.id) as bytes
		from outbox.scheduled s where s.publisher = of_publisher and s.id = any (ids[:max_rows])) w
	where w.bytes <= max_bytes or w.place = 1;
	rest := coalesce(ids[coalesce(cardinality(recent), 0) + 1], rest);
	due := array[least(rest, blocked), now_us, of_requests];
	ids := recent;
end
$$;

-- The content of the next listed window: parked and scheduled rows; null: there is none. Each kind has its
-- own limits, so that neither waits for the other. `due` has five numbers while the next search of parked
-- rows must continue behind blocked ones (outbox.parked_next).
create function outbox.listed_next(of_publisher text, of_shard int, first_tick bigint, max_rows int,
	max_bytes bigint, of_requests bigint, inout due bigint[], out ids bigint[])
language plpgsql volatile as $$
declare
	behind bigint[] := case when due[3] = of_requests then due[4:] end;
	parked bigint[];
begin
	select n.due, n.ids into due, ids from outbox.scheduled_next(
		of_publisher, of_shard, first_tick, max_rows, max_bytes, of_requests, listed_next.due) n;
	select n.behind, n.ids into behind, parked from outbox.parked_next(
		of_publisher, of_shard, first_tick, max_rows, max_bytes, behind) n;
	due := due || behind;
	ids := parked || ids;
end
$$;

-- The rows of a listed window; deliver_at is null for rows in outbox.parked.
create function outbox.listed_rows(of_publisher text, ids bigint[])
returns table (id bigint, created_at timestamptz, event_id uuid, topic text, key bytea, payload bytea,
	headers json, partition int, deliver_at timestamptz) language sql stable as $$
	select p.id, p.created_at, p.event_id, p.topic, p.key, p.payload, p.headers, p.partition, null
	from outbox.parked p where p.publisher operator(pg_catalog.=) of_publisher
		and p.id operator(pg_catalog.=) any (ids)
	union all
	select s.id, s.created_at, s.event_id, s.topic, s.key, s.payload, s.headers, s.partition,
		s.deliver_at
	from outbox.scheduled s where s.publisher operator(pg_catalog.=) of_publisher
		and s.id operator(pg_catalog.=) any (ids)
	order by 1
$$;

-- Milliseconds until a row is due, or its window is checked again; null: never. Clocks may be set, so
-- the answer for a far time is at most an hour. After a list that left due rows the next list comes at
-- once, unless it would begin with a row of an open window.
create function outbox.listed_wait(of_publisher text, of_shard int, first_tick bigint, of_requests bigint,
	due bigint[]) returns bigint language plpgsql volatile as $$
declare
	known boolean := coalesce(due[3] = of_requests, false);
	since timestamptz := case when known then timestamptz 'epoch' + due[2] * interval '1 us'
		else '-infinity' end;
begin
	return least(outbox.parked_wait(of_publisher, of_shard, first_tick),
		case when known and due[1] < 9223372036854775807 then (
			select case when count(*) = 0 then 0 else 50 end from outbox.scheduled s
			where s.publisher = of_publisher and s.id = due[1] and s.tick > first_tick)
		else (
			select least(3600000, greatest(0, ceil(extract(epoch from case when s.tick <= first_tick
				then s.deliver_at else greatest(s.deliver_at, clock_timestamp() + interval '50 ms')
				end - clock_timestamp()) * 1000)))::bigint
			from outbox.scheduled s
			where s.publisher = of_publisher and s.shard = of_shard and s.deliver_at > since and s.tick >= 0
			order by s.deliver_at limit 1) end);
end
$$;

-- The state of each message, derived from the log without any stored state. before_start: the publisher
-- begins behind the message and never publishes it.
create view outbox.message_state as
	select m.id, m.created_at, m.event_id, m.topic, outbox.published_bytes(m.key, m.key_bytes) as key, p.publisher,
		p.shard,
		case when exists (select from outbox.parked q
				where q.publisher = p.publisher and q.id = m.id and q.event_id = m.event_id)
			or exists (select from outbox.parked q where q.publisher = p.publisher and q.was_id = m.id
				and q.was_id is not null and q.event_id = m.event_id)
			then 'parked'
		when exists (select from outbox.scheduled q
				where q.publisher = p.publisher and q.id = m.id and q.event_id = m.event_id)
			or exists (select from outbox.scheduled q where q.publisher = p.publisher and q.was_id = m.id
				and q.was_id is not null and q.event_id = m.event_id)
			then 'scheduled'
		when m.created_at < p.start_at or pg_visible_in_snapshot(m.txid, p.start) then 'before_start'
		when pg_visible_in_snapshot(m.txid, p.ticks[1])
			or (cardinality(p.ticks) > 1 and pg_visible_in_snapshot(m.txid, p.ticks[2])
				and m.id <= p.acked_id)
			then 'published' else 'pending' end as state
	from outbox.message m
	join outbox.progress p on p.shard = outbox.bucket_shard(m.bucket, p.shards);

comment on view outbox.message_state is 'State of each message for each publisher.';
comment on column outbox.message_state.id is 'As in outbox.message.';
comment on column outbox.message_state.created_at is 'As in outbox.message.';
comment on column outbox.message_state.event_id is 'As in outbox.message.';
comment on column outbox.message_state.topic is 'As in outbox.message.';
comment on column outbox.message_state.key is 'Published bytes of the key.';
comment on column outbox.message_state.publisher is 'Name of the publisher.';
comment on column outbox.message_state.shard is 'Shard of the message.';
comment on column outbox.message_state.state is 'pending, published, parked, scheduled, or before_start: the '
	'publisher starts after the message and never publishes it.';

-- The row of an event id, without an index on event ids, which would cost every writer. Ids of messages rise with
-- their time, so the ids around a time are found by halving the range of all ids.
create function outbox.message_id_at(moment timestamptz) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
	low bigint := (select m.id from outbox.message m order by m.id limit 1);
	high bigint := (select m.id from outbox.message m order by m.id desc limit 1);
	middle bigint;
	found_id bigint;
	found_at timestamptz;
begin
	while high - low > 100 loop
		middle := low + (high - low) / 2;
		select m.id, m.created_at into found_id, found_at from outbox.message m
			where m.id >= middle order by m.id limit 1;
		if found_at < moment then
			low := found_id;
		else
			high := middle;
		end if;
	end loop;
	return low;
end
$$;

comment on function outbox.message_id_at(timestamptz) is 'Returns an id of outbox.message at most a hundred ids before the '
	'messages of this time.';

-- The state of a message, for its writer: a row for each publisher; no row if no such message was committed. An id
-- that outbox.publish or the table made says when it was made. For an id of another kind the caller says when the
-- message was written. As its definer, since a writer may not read the table.
create function outbox.message_state_of(of_event_id uuid, around timestamptz default null)
returns table (id bigint, created_at timestamptz, publisher text, state text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
	digits text := replace(of_event_id::text, '-', '');
	moment timestamptz := coalesce(around, case when substr(digits, 13, 1) = '7' then timestamptz 'epoch'
		+ ('x' || left(digits, 12))::bit(48)::bigint * interval '1 ms' end);
	span interval;
	found_id bigint;
	found_at timestamptz;
begin
	if moment is null then
		raise exception 'event id % does not say when it was made', of_event_id
			using errcode = 'invalid_parameter_value', hint = 'only UUIDs of version 7 do, such as outbox.publish '
				'makes; pass the time at which the message was written as the second argument';
	end if;
	foreach span in array array[interval '5 ms', interval '100 ms', interval '2 s', interval '1 min'] loop
		select m.id, m.created_at into found_id, found_at from outbox.message m
			where m.id >= (select outbox.message_id_at(moment - span))
				and m.id <= (select outbox.message_id_at(moment + span) + 100) and m.event_id = of_event_id
			order by m.id limit 1;
		exit when found_id is not null;
	end loop;
	return query select s.id, s.created_at, s.publisher, s.state from outbox.message_state s
		where s.id = found_id and s.created_at = found_at order by s.publisher;
end
$$;
comment on function outbox.message_state_of(uuid, timestamptz) is 'Returns the state of a message for each '
	'publisher, as in outbox.message_state; no row if no such message was committed, or its row was dropped. '
	'`around`: the time at which the message was written, within a minute. Required unless the event id is a version 7 '
	'UUID, which contains the time at which it was made.';
revoke execute on function outbox.message_state_of(uuid, timestamptz) from public;

-- Finds messages without an index on event ids, topics or keys, which would cost every writer: those with this event id, or
-- with this topic and key, that were created in [from_at, to_at) and have an id behind after_id, at most `most`, by id. The
-- last row has no id: upto_id is the id up to which messages were examined, and `over` says whether all of them were.
-- The search stops after about within_ms, however many messages there are.
--
-- It goes by steps of ids, which become larger while they are quick. Ids that are far apart, as after a setval, cost one
-- probe. message_id_at is right to a hundred ids, and messages may have drawn their ids in another order than their times.
create function outbox.message_scan(of_event_id uuid, of_topic text, of_key bytea, from_at timestamptz,
	to_at timestamptz, after_id bigint, most int, within_ms int)
returns table (id bigint, created_at timestamptz, upto_id bigint, over boolean)
language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
	until timestamptz := clock_timestamp() + within_ms * interval '1 ms';
	step_began timestamptz;
	last_id bigint := outbox.message_id_at(to_at) + 1000;
	of_bucket smallint := outbox.bucket_of(null, of_key);
	step bigint := 1000;
	at_id bigint;
	next_id bigint;
	finished boolean;
begin
	at_id := greatest(after_id, outbox.message_id_at(from_at) - 1000);
	loop
		step_began := clock_timestamp();
		finished := true;
		next_id := (select m.id from outbox.message m where m.id > at_id and m.id <= last_id
			and m.created_at >= from_at and m.created_at < to_at order by m.id limit 1);
		exit when next_id is null;
		finished := false;
		exit when most <= 0 or step_began > until;
		for id, created_at in
			select m.id, m.created_at from outbox.message m
			where of_event_id is not null and m.id >= next_id and m.id < next_id + step and m.id <= last_id
				and m.created_at >= from_at and m.created_at < to_at and m.event_id = of_event_id
			union all
			select m.id, m.created_at from outbox.message m
			where of_event_id is null and m.id >= next_id and m.id < next_id + step and m.id <= last_id
				and m.created_at >= from_at and m.created_at < to_at and m.bucket = of_bucket
				and m.topic = of_topic and outbox.published_bytes(m.key, m.key_bytes) = of_key
			order by 1
		loop
			-- messages that share an id are never on two pages
			exit when most <= 0 and id <> at_id;
			at_id := id;
			most := most - 1;
			return next;
		end loop;
		if most > 0 then
			at_id := next_id + step - 1;
		end if;
		step := case when clock_timestamp() - step_began < interval '30 ms' then least(step * 2, 200000)
			else greatest(step / 2, 1000) end;
	end loop;
	id := null;
	created_at := null;
	upto_id := at_id;
	over := finished;
	return next;
end
$$;
comment on function outbox.message_scan(uuid, text, bytea, timestamptz, timestamptz, bigint, int, int) is
	'Finds messages by event id, or by topic and key, in a range of time; for `outbox-relay message find`.';

-- Where a message is by a shard's log. stage: waiting (no window has it yet), open (a window that is not settled up to it)
-- or settled (Kafka acknowledged it, or it was parked or scheduled). tick is the number of its window; opened_n and
-- settled_n are the log rows that opened the window and that settled the message in it. null: the log does not reach back
-- to log_from, or it did not happen yet.
--
-- Both happen once and stay, so they are found by halving the range of all rows. Rows of another cluster say nothing.
create function outbox.message_windows(of_publisher text, of_shard int, of_txid xid8, of_id bigint,
	out stage text, out tick bigint, out opened_n bigint, out opened_at timestamptz, out settled_n bigint,
	out settled_at timestamptz, out log_from timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
	newest outbox.log;
	l outbox.log;
	low bigint;
	high bigint;
	happened boolean;
begin
	select r.* into newest from outbox.log r where r.publisher = of_publisher and r.shard = of_shard
		order by r.n desc limit 1;
	select r.* into l from outbox.log r where r.publisher = of_publisher and r.shard = of_shard
		order by r.n limit 1;
	log_from := l.written_at;
	stage := case
		when pg_visible_in_snapshot(of_txid, newest.ticks[1]) or cardinality(newest.ticks) > 1
			and pg_visible_in_snapshot(of_txid, newest.ticks[2]) and of_id <= newest.acked_id then 'settled'
		when pg_visible_in_snapshot(of_txid, newest.ticks[cardinality(newest.ticks)]) then 'open'
		else 'waiting' end;

	-- it happened with the row `high` or before, and not yet with `low`
	low := l.n - 1;
	high := newest.n;
	while stage <> 'waiting' and high - low > 1 loop
		select r.* into l from outbox.log r where r.publisher = of_publisher and r.shard = of_shard
			and r.n = low + (high - low) / 2;
		happened := l.system_identifier = newest.system_identifier
			and pg_visible_in_snapshot(of_txid, l.ticks[cardinality(l.ticks)]);
		low := case when happened then low else low + (high - low) / 2 end;
		high := case when happened then l.n else high end;
	end loop;
	select r.n, r.written_at, r.first_tick + cardinality(r.ticks) - 1 into opened_n, opened_at, tick
		from outbox.log r where r.publisher = of_publisher and r.shard = of_shard and r.n = high
			and stage <> 'waiting'
			and exists (select from outbox.log b where b.publisher = of_publisher and b.shard = of_shard and b.n = low);

	high := newest.n;
	while stage = 'settled' and high - low > 1 loop
		select r.* into l from outbox.log r where r.publisher = of_publisher and r.shard = of_shard
			and r.n = low + (high - low) / 2;
		happened := l.system_identifier = newest.system_identifier
			and (pg_visible_in_snapshot(of_txid, l.ticks[1]) or cardinality(l.ticks) > 1
				and pg_visible_in_snapshot(of_txid, l.ticks[2]) and of_id <= l.acked_id);
		low := case when happened then low else low + (high - low) / 2 end;
		high := case when happened then l.n else high end;
	end loop;
	select r.n, r.written_at into settled_n, settled_at
		from outbox.log r where r.publisher = of_publisher and r.shard = of_shard and r.n = high
			and stage = 'settled'
			and exists (select from outbox.log b where b.publisher = of_publisher and b.shard = of_shard and b.n = low);
end
$$;
comment on function outbox.message_windows(text, int, xid8, bigint) is 'Returns the window of a message in a shard, and '
	'the rows of outbox.log that opened and settled it.';

-- When a shard had noted the acknowledgement of the record with this position; null: the log does not reach back to it. A
-- parked or scheduled message is published in another window than its own, which its record names.
create function outbox.message_acknowledged(of_publisher text, of_shard int, of_tick bigint, of_id bigint)
returns timestamptz
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
	l outbox.log;
	high bigint := (select r.n from outbox.log r where r.publisher = of_publisher and r.shard = of_shard
		order by r.n desc limit 1);
	low bigint := (select r.n - 1 from outbox.log r where r.publisher = of_publisher and r.shard = of_shard
		order by r.n limit 1);
	first bigint := low + 1;
begin
	high := high + 1; -- it happened before this row, and not yet with `low`
	while high - low > 1 loop
		select r.* into l from outbox.log r where r.publisher = of_publisher and r.shard = of_shard
			and r.n = low + (high - low) / 2;
		if l.first_tick >= of_tick or l.first_tick = of_tick - 1 and l.acked_id >= of_id then
			high := l.n;
		else
			low := low + (high - low) / 2;
		end if;
	end loop;
	return (select r.written_at from outbox.log r where r.publisher = of_publisher and r.shard = of_shard
		and r.n = high and high > first);
end
$$;
comment on function outbox.message_acknowledged(text, int, bigint, bigint) is 'Returns when the log noted the '
	'acknowledgement of the record with this position.';

-- Did this replay select the message? The filter is that of outbox.replay.
create function outbox.replay_has(r outbox.replay, of_id bigint, of_created_at timestamptz, of_event_id uuid,
	of_topic text, of_key bytea, of_txid xid8, of_bucket smallint) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
	ids text[] := string_to_array(r.filter ->> 'ids', '..');
	created text[] := string_to_array(r.filter ->> 'created', '..');
	place int := outbox.bucket_shard(of_bucket, r.shards) + 1;
begin
	return of_id <= r.upto_id and pg_visible_in_snapshot(of_txid, r.snapshot)
		and (ids is null or of_id >= coalesce(nullif(ids[1], '')::bigint, 1)
			and of_id <= coalesce(nullif(ids[cardinality(ids)], '')::bigint, r.upto_id))
		and (created is null or of_created_at >= coalesce(nullif(created[1], '')::timestamptz, '-infinity')
			and of_created_at < coalesce(nullif(created[2], '')::timestamptz, 'infinity'))
		and (r.filter ->> 'topic' is null or r.filter ->> 'topic' = of_topic)
		and (r.filter ->> 'key' is null or (r.filter ->> 'key')::bytea = of_key)
		and (r.filter ->> 'event-id' is null or (r.filter ->> 'event-id')::uuid = of_event_id)
		and (r.acked is null or pg_visible_in_snapshot(of_txid, r.acked[place])
			or of_id <= r.acked_ids[place] and pg_visible_in_snapshot(of_txid, r.windows[place]));
end
$$;
comment on function outbox.replay_has(outbox.replay, bigint, timestamptz, uuid, text, bytea, xid8, smallint) is
	'Returns whether a replay selected a message.';
revoke execute on function outbox.message_scan(uuid, text, bytea, timestamptz, timestamptz, bigint, int, int),
	outbox.message_windows(text, int, xid8, bigint), outbox.message_acknowledged(text, int, bigint, bigint),
	outbox.replay_has(outbox.replay, bigint, timestamptz, uuid, text, bytea, xid8, smallint) from public;
