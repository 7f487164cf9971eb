-- oldest-program: 0.1.0
-- Making, splitting and dropping slots. The slot "main" exists by default and begins with the first
-- row of the table.

-- start: 'beginning' (every row in the table) or 'now' (what commits from here on).
create function outbox.slot_create(new_slot text, new_shards int, start text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
	-- a snapshot in which nothing is visible, or the one of this statement
	base pg_snapshot := case start when 'beginning' then '3:3:'::pg_snapshot
		when 'now' then pg_current_snapshot() end;
begin
	if base is null then
		raise exception 'a slot starts at ''beginning'' or ''now'', not at ''%''', start;
	end if;
	insert into outbox.slot (name, shards) values (new_slot, new_shards);
	perform outbox.slot_shards(new_slot, new_shards, base, 0);
end
$$;

-- The first log rows of so many shards, beginning at one snapshot, under a lease that is over.
-- n goes on where an earlier set of shards of this slot ended. Fails with unique_violation when an owner
-- of that set writes its next row at the same time: nothing has happened then, and the next try finds it.
create function outbox.slot_shards(of_slot text, shards int, base pg_snapshot, first_tick bigint)
returns void language plpgsql volatile as $$
declare
	first_n bigint;
	random_epoch bigint;
begin
	-- all partitions before the first row: an owner that meets one of our rows waits for our end
	for s in 0 .. shards - 1 loop
		select coalesce(max(l.n) + 1, 0) into first_n from outbox.log l
			where l.slot = of_slot and l.shard = s;
		if outbox.log_partition_make(of_slot, s, first_n) = 'busy' then
			raise exception 'the log is locked by somebody else; try again'
				using errcode = 'lock_not_available';
		end if;
	end loop;
	for s in 0 .. shards - 1 loop
		select coalesce(max(l.n) + 1, 0) into first_n from outbox.log l
			where l.slot = of_slot and l.shard = s;
		random_epoch := ('x' || translate(gen_random_uuid()::text, '-', ''))::bit(63)::bigint;
		insert into outbox.log (slot, shard, n, epoch, nonce, owner, lease_until, first_tick,
			acked_id, ticks, destinations, timeline, system_identifier)
		values (of_slot, s, first_n, random_epoch, 0, '', '-infinity', slot_shards.first_tick, 0,
			array[base], '{}', outbox.timeline(),
			(select system_identifier from pg_control_system()));
	end loop;
end
$$;

-- A split in three calls of its own transaction each: begin (no new window opens), bound (every shard
-- publishes up to one snapshot, taken after the first call is visible to all), and finish (once all
-- shards have acknowledged that snapshot; until then it says how many have).
create function outbox.slot_split_begin(of_slot text, shards int) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
	update outbox.slot s set split_to = slot_split_begin.shards, drain_to = null
		where s.name = of_slot and s.split_to is null;
	if not found then
		raise exception 'slot % does not exist or is being split already', of_slot;
	end if;
end
$$;

create function outbox.slot_split_bound(of_slot text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
	update outbox.slot set drain_to = pg_current_snapshot()
	where name = of_slot and split_to is not null and drain_to is null
$$;

create function outbox.slot_split_cancel(of_slot text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
	update outbox.slot set split_to = null, drain_to = null where name = of_slot
$$;

-- Returns the number of shards that are not there yet; 0: the split is done. Fails with
-- unique_violation or lock_not_available when it met an owner or upkeep: to be called again.
create function outbox.slot_split_finish(of_slot text) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
	behind int;
	slot_row outbox.slot;
	next_tick bigint;
begin
	select s.* into slot_row from outbox.slot s where s.name = of_slot for update;
	if slot_row.split_to is null or slot_row.drain_to is null then
		raise exception 'slot % is not being split', of_slot;
	end if;
	-- the owners insert their log rows without looking at this lock; a row that comes after this
	-- look can only renew a lease, since a drained shard has nothing left to write
	select count(*) into behind from outbox.progress p
		where p.slot = of_slot and not (cardinality(p.ticks) = 1
			and p.ticks[1]::text = slot_row.drain_to::text);
	if behind = 0 then
		select max(p.first_tick) into next_tick from outbox.progress p where p.slot = of_slot;
		update outbox.slot s set shards = slot_row.split_to, split_to = null, drain_to = null
			where s.name = of_slot;
		perform outbox.slot_shards(of_slot, slot_row.split_to, slot_row.drain_to, next_tick);
		update outbox.parked p set shard = outbox.shard_of(p.key, slot_row.split_to)
			where p.slot = of_slot;
	end if;
	return behind;
end
$$;

create function outbox.slot_drop(of_slot text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
	delete from outbox.slot where name = of_slot;
	if not found then
		raise exception 'slot % does not exist', of_slot;
	end if;
	delete from outbox.log where slot = of_slot;
	delete from outbox.parked where slot = of_slot;
end
$$;

-- They run as the schema's owner: only who is granted them (roles.sql) may call them.
revoke execute on function
	outbox.slot_create(text, int, text), outbox.slot_split_begin(text, int),
	outbox.slot_split_bound(text), outbox.slot_split_cancel(text), outbox.slot_split_finish(text),
	outbox.slot_drop(text) from public;

select outbox.slot_create('main', 1, 'beginning');
