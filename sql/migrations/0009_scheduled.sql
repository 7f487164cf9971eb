-- oldest-program: 0.1.0
--
-- Messages that are not to be delivered before a time of their own. When the window that such a row
-- lies in is published, due or not, a full copy goes here: the message's own partition may go. From
-- here it comes back in a listed window once it is due, in the order of ids among all that are due
-- then. A row comes and goes in the transaction of the log row that notes it (outbox.tick).
--
-- A row is listed only when the window it came from is published to its end. Before, an owner that
-- takes over reads that window again and notes the row once more, which changes nothing while it stands
-- here.

create table outbox.scheduled (
	slot       text collate "C" not null,
	shard      int         not null,
	id         bigint      not null, -- of the message, as are the next eight
	created_at timestamptz not null,
	event_id   uuid        not null,
	topic      text collate "C" not null,
	key        bytea,
	payload    bytea,
	headers    jsonb,
	partition  int,
	deliver_at timestamptz not null,
	tick       bigint      not null, -- the window it came from
	primary key (slot, id)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

create index scheduled_due on outbox.scheduled (slot, shard, deliver_at) include (id, tick);
create index scheduled_ids on outbox.scheduled (slot, shard, id) include (deliver_at, tick);

comment on table outbox.scheduled is 'Messages of which deliver_at is not over, or was not a moment ago.';

-- Notes rows: [[id, created at in µs since 1970, tick], …]; null: none.
create function outbox.schedule(of_slot text, of_shard int, rows jsonb) returns void
language sql volatile as $$
	insert into outbox.scheduled (slot, shard, id, created_at, event_id, topic, key, payload, headers,
		partition, deliver_at, tick)
	select of_slot, of_shard, m.id, m.created_at, m.event_id, m.topic, m.key, m.payload, m.headers,
		m.partition, m.deliver_at, (r ->> 2)::bigint
	from jsonb_array_elements(rows) r join outbox.message m on m.id = (r ->> 0)::bigint
		and m.created_at = timestamptz 'epoch' + (r ->> 1)::bigint * interval '1 us'
	on conflict (slot, id) do nothing
$$;

-- The ids of so many rows that are due, the smallest of all that are; null: none is. Whatever the
-- numbers of those that wait and of those that are due, it looks at few of both: when many are due, and
-- are not found among the first by id, at all that are due.
create function outbox.scheduled_next(
	of_slot text, of_shard int, first_tick bigint, max_rows int, max_bytes bigint)
returns bigint[] language plpgsql volatile as $$
declare
	now timestamptz := clock_timestamp();
	ids bigint[];
begin
	select array_agg(d.id) into ids from (
		select s.id from outbox.scheduled s
		where s.slot = of_slot and s.shard = of_shard and s.deliver_at <= now
			and s.tick <= first_tick
		order by s.deliver_at limit 8 * max_rows) d;
	if cardinality(ids) = 8 * max_rows then
		select array_agg(f.id) into ids from (
			select s.id, s.deliver_at, s.tick from outbox.scheduled s
			where s.slot = of_slot and s.shard = of_shard order by s.id limit 8 * max_rows) f
		where f.deliver_at <= now and f.tick <= first_tick;
		if coalesce(cardinality(ids), 0) < max_rows / 4 then
			ids := array(select s.id from outbox.scheduled s
				where s.slot = of_slot and s.shard = of_shard and s.deliver_at <= now
					and s.tick <= first_tick
				order by s.id + 0 limit max_rows);
		end if;
	end if;
	return (
		select array_agg(w.id order by w.id) from (
			select s.id, row_number() over (order by s.id) as place,
				sum(coalesce(octet_length(s.payload), 0) + 1000) over (order by s.id) as bytes
			from (select u.id from unnest(ids) u (id) order by u.id limit max_rows) f
			join outbox.scheduled s on s.slot = of_slot and s.id = f.id) w
		where w.bytes <= max_bytes or w.place = 1);
end
$$;

-- What the next listed window holds: parked rows and scheduled ones; null: there is none. Each kind has
-- the bounds for itself, so that neither waits for the other.
create function outbox.listed_next(
	of_slot text, of_shard int, first_tick bigint, max_rows int, max_bytes bigint)
returns bigint[] language sql volatile as $$
	select outbox.parked_next(of_slot, of_shard, first_tick, max_rows, max_bytes)
		|| outbox.scheduled_next(of_slot, of_shard, first_tick, max_rows, max_bytes)
$$;

-- The rows of a listed window; deliver_at is null for those that stand in outbox.parked.
create function outbox.listed_rows(of_slot text, ids bigint[])
returns table (id bigint, created_at timestamptz, event_id uuid, topic text, key bytea, payload bytea,
	headers jsonb, partition int, deliver_at timestamptz) language sql stable as $$
	select p.id, p.created_at, p.event_id, p.topic, p.key, p.payload, p.headers, p.partition, null
	from outbox.parked p where p.slot = of_slot and p.id = any (ids)
	union all
	select s.id, s.created_at, s.event_id, s.topic, s.key, s.payload, s.headers, s.partition,
		s.deliver_at
	from outbox.scheduled s where s.slot = of_slot and s.id = any (ids)
	order by 1
$$;

-- Milliseconds until a row is due, or its window is looked at again; null: none ever. Clocks are set, so
-- a far one is asked for again within an hour.
create function outbox.listed_wait(of_slot text, of_shard int, first_tick bigint) returns bigint
language sql volatile as $$
	select least(outbox.parked_wait(of_slot, of_shard, first_tick), (
		select least(3600000, greatest(0, ceil(extract(epoch from case when s.tick <= first_tick
			then s.deliver_at else greatest(s.deliver_at, clock_timestamp() + interval '50 ms') end
			- clock_timestamp()) * 1000)))::bigint
		from outbox.scheduled s where s.slot = of_slot and s.shard = of_shard
		order by s.deliver_at limit 1))
$$;

-- What became of each message, derived from the log: nothing is stored for it. before_start: the slot
-- begins behind it and never publishes it.
create view outbox.message_state as
	select m.id, m.created_at, m.event_id, m.topic, m.key, p.slot, p.shard,
		case when exists (select from outbox.parked q where q.slot = p.slot and q.id = m.id)
			then 'parked'
		when exists (select from outbox.scheduled q where q.slot = p.slot and q.id = m.id)
			then 'scheduled'
		when m.created_at < p.start_at or pg_visible_in_snapshot(m.txid, p.start) then 'before_start'
		when pg_visible_in_snapshot(m.txid, p.ticks[1])
			or (cardinality(p.ticks) > 1 and pg_visible_in_snapshot(m.txid, p.ticks[2])
				and m.id <= p.acked_id)
			then 'published' else 'pending' end as state
	from outbox.message m
	join outbox.progress p on p.shard = outbox.shard_of(m.key, p.shards);
