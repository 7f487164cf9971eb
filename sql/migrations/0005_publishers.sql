-- oldest-program: 0.1.0
-- Making, splitting and dropping publishers. The publisher "main" exists by default and begins with the first
-- row of the table.

-- The snapshot behind which a publisher that starts at a time begins: no row created at or after it is visible
-- in it. All rows visible in it may be skipped unread, which is all that matters. Older rows that are not
-- visible are recognised by their created_at (publisher.start_at), because one transaction can have written
-- before and after that time.
--
-- It is nearly the snapshot that was current then. Its xmax is behind the last transaction that wrote an
-- older row, and its list of transactions in progress holds those below that wrote a newer one, or are
-- still in progress and may yet have done so. The list is read after `seen` was taken, so that a
-- transaction that commits in between is found in one or the other.
create function outbox.publisher_base(since timestamptz) returns pg_snapshot language plpgsql volatile
set jit = off as $$
declare
	seen pg_snapshot := pg_current_snapshot();
	upto xid8;
	straddling xid8[];
begin
	select m.txid into upto from outbox.message m where m.created_at < since
		order by m.txid desc limit 1;
	if upto is null then
		return '3:3:';
	end if;
	upto := least(((upto::text)::bigint + 1)::text::xid8, pg_snapshot_xmax(seen));
	straddling := array(
		select m.txid from outbox.message m where m.created_at >= since and m.txid < upto
		union select x from pg_snapshot_xip(seen) x where x < upto
		order by 1);
	-- clocks set back, or created_at given by hand; every log row has this list, so it must be short
	if cardinality(straddling) > 1000 then
		return format('%1$s:%1$s:', straddling[1])::pg_snapshot;
	end if;
	return format('%s:%s:%s', coalesce(straddling[1], upto), upto,
		array_to_string(straddling, ','))::pg_snapshot;
end
$$;

-- start: 'beginning' (every row in the table), 'now' (what commits from here on) or a time, with its zone
-- (every row created then or later, whenever it commits).
create function outbox.publisher_create(new_publisher text, new_shards int, start text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
declare
	base pg_snapshot;
	start_at timestamptz;
begin
	perform outbox.require_read_committed();
	-- No partition is emptied based on the earlier publishers alone, and moves of rows have ended.
	perform outbox.upkeep_begin('partitions', true);
	if start = 'beginning' then
		base := '3:3:'; -- nothing is visible in it
	elsif start = 'now' then
		base := pg_current_snapshot();
	else
		begin
			start_at := start::timestamptz;
		exception when data_exception then
			start_at := null;
		end;
		if start_at is null or not isfinite(start_at) then
			raise exception 'a publisher starts at ''beginning'', ''now'' or a time, not at ''%''', start;
		elsif start_at > clock_timestamp() then
			raise exception 'a publisher cannot start in the future; the server''s clock says %',
				to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
		end if;
		base := outbox.publisher_base(start_at);
	end if;
	if outbox.has_rows_of_the_future()
		or exists (select from outbox.progress p where p.written_elsewhere) then
		raise exception 'rows were carried here from another database cluster: a publisher would read '
			'them wrongly; run `outbox-relay publisher rebase --all` first';
	end if;
	insert into outbox.publisher (name, shards, start, start_at) values (new_publisher, new_shards, base, start_at);
	perform outbox.publisher_shards(new_publisher, new_shards, base, 0);
end
$$;

-- The first log rows of so many shards, beginning at one snapshot, under a lease that is over.
-- n goes on where an earlier set of shards of this publisher ended. Fails with unique_violation when an owner
-- of that set writes its next row at the same time: nothing has happened then, and the next try finds it.
create function outbox.publisher_shards(of_publisher text, shards int, base pg_snapshot, first_tick bigint)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
	first_n bigint;
	random_epoch bigint;
begin
	-- makes all partitions before the first row: an owner that meets one of our rows waits until we commit
	for s in 0 .. shards - 1 loop
		select coalesce(max(l.n) + 1, 0) into first_n from outbox.log l
			where l.publisher = of_publisher and l.shard = s;
		if outbox.log_partition_make(of_publisher, s, first_n) = 'busy' then
			raise exception 'the log is locked by somebody else; try again'
				using errcode = 'lock_not_available';
		end if;
	end loop;
	for s in 0 .. shards - 1 loop
		select coalesce(max(l.n) + 1, 0) into first_n from outbox.log l
			where l.publisher = of_publisher and l.shard = s;
		random_epoch := ('x' || translate(gen_random_uuid()::text, '-', ''))::bit(63)::bigint;
		insert into outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick,
			acked_id, ticks, destinations, folded, timeline, system_identifier)
		values (of_publisher, s, first_n, random_epoch, 0, '', '-infinity', publisher_shards.first_tick, 0,
			array[base], '{}', first_n, outbox.timeline(),
			outbox.system_identifier());
	end loop;
	-- Nothing of an earlier set of shards is uncovered: the new ones begin where the partitions end. Behind the
	-- log rows, since an owner folds behind its own: none folds from here on, and none waits for us half way.
	delete from outbox.destination d where d.publisher = of_publisher;
end
$$;

-- A split in three calls of its own transaction each: begin (no new window opens), bound (every shard
-- publishes up to one snapshot, taken after the first call is visible to all), and finish (once all
-- shards have acknowledged that snapshot; until then it says how many have).
create function outbox.publisher_split_begin(of_publisher text, shards int) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
declare
	publisher_row outbox.publisher;
begin
	select s.* into publisher_row from outbox.publisher s where s.name = of_publisher for update;
	if publisher_row.name is null then
		raise exception 'publisher % does not exist', of_publisher;
	elsif publisher_row.split_to is not null then
		raise exception 'publisher % is being split already', of_publisher;
	elsif publisher_row.paused_at is not null then
		raise exception 'publisher % is paused: a split publishes up to a common snapshot', of_publisher
			using hint = format('run `outbox-relay publisher resume %s` first', of_publisher);
	elsif publisher_row.shards = publisher_split_begin.shards then
		raise exception 'publisher % has % shards as it is', of_publisher, publisher_row.shards;
	end if;
	perform outbox.publisher_split_check(of_publisher);
	update outbox.publisher s set split_to = publisher_split_begin.shards, drain_to = null
		where s.name = of_publisher;
end
$$;

-- A shard knows the offset from which to search for its records in a stalled partition; the new shards
-- would not.
create function outbox.publisher_split_check(of_publisher text) returns void language plpgsql stable as $$
declare
	place record;
begin
	select p.topic, p.stalled, count(*) as rows into place from outbox.parked p
		where p.publisher = of_publisher and p.stalled >= 0 group by 1, 2 order by 3 desc limit 1;
	if place.topic is not null then
		raise exception '% parked rows wait for partition % of topic %, which takes nothing, or are '
			'yet to be sent to it', place.rows, place.stalled, place.topic
			using hint = 'split when `outbox-relay parked list` no longer shows them';
	end if;
end
$$;

create function outbox.publisher_split_bound(of_publisher text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
	update outbox.publisher set drain_to = pg_current_snapshot()
	where name = of_publisher and split_to is not null and drain_to is null
$$;

create function outbox.publisher_split_cancel(of_publisher text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
begin
	update outbox.publisher set split_to = null, drain_to = null where name = of_publisher;
	if not found then
		raise exception 'publisher % does not exist', of_publisher;
	end if;
end
$$;

-- Returns the number of shards that are not there yet; 0: the split is done. Fails with
-- unique_violation or lock_not_available if it met an owner or upkeep: call it again.
create function outbox.publisher_split_finish(of_publisher text) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
declare
	behind int;
	publisher_row outbox.publisher;
	next_tick bigint;
begin
	select s.* into publisher_row from outbox.publisher s where s.name = of_publisher for update;
	if publisher_row.split_to is null or publisher_row.drain_to is null then
		raise exception 'publisher % is not being split', of_publisher;
	end if;
	-- the owners insert their log rows without looking at this lock; a row that comes after this
	-- look can only renew a lease, since a drained shard has nothing left to write
	select count(*) into behind from outbox.progress p
		where p.publisher = of_publisher and not (cardinality(p.ticks) = 1
			and p.ticks[1]::text = publisher_row.drain_to::text and not exists (select from outbox.log l
				where l.publisher = p.publisher and l.shard = p.shard and l.n = p.n and l.listed_tick is not null));
	if behind = 0 then
		perform outbox.publisher_split_check(of_publisher);
		select max(p.first_tick) into next_tick from outbox.progress p where p.publisher = of_publisher;
		update outbox.publisher s set shards = publisher_row.split_to, split_to = null, drain_to = null
			where s.name = of_publisher;
		perform outbox.publisher_shards(of_publisher, publisher_row.split_to, publisher_row.drain_to, next_tick);
		update outbox.parked p set shard = outbox.shard_of(p.key, publisher_row.split_to)
			where p.publisher = of_publisher and p.tick >= 0;
		perform outbox.parked_requests_split(of_publisher, publisher_row.split_to);
		update outbox.scheduled s set shard = outbox.shard_of(s.key, publisher_row.split_to)
			where s.publisher = of_publisher and s.tick >= 0
				and s.shard <> outbox.shard_of(s.key, publisher_row.split_to);
	end if;
	return behind;
end
$$;

-- Pauses a publisher, or resumes it: owners heed it within a second, by their next tick. A paused shard keeps its
-- lease, its open windows and its records; those that Kafka has already are noted. Does nothing and returns null if
-- the publisher is paused, or not paused, already; otherwise the id of the row in outbox.audit. new_caller: as in
-- outbox.audit.
create function outbox.publisher_pause(of_publisher text, pauses boolean, new_reason text, new_caller text default null)
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
declare
	publisher_row outbox.publisher;
	audit_id bigint;
begin
	perform outbox.replay_durable();
	select s.* into publisher_row from outbox.publisher s where s.name = of_publisher for update;
	if publisher_row.name is null then
		raise exception 'publisher % does not exist', of_publisher;
	elsif pauses and publisher_row.split_to is not null then
		raise exception 'publisher % is being split: the split must end first', of_publisher
			using hint = format('wait, or run `outbox-relay publisher split %s --cancel`', of_publisher);
	elsif pauses = (publisher_row.paused_at is not null) then
		return null;
	end if;
	update outbox.publisher s set paused_at = case when pauses then clock_timestamp() end
		where s.name = of_publisher;
	insert into outbox.audit (caller, verb, publisher, target, reason)
	values (new_caller, case when pauses then 'pause' else 'resume' end, of_publisher, '{}', new_reason)
	returning id into audit_id;
	return audit_id;
end
$$;

-- Pauses a topic of a publisher, or resumes it: owners heed it by their next tick. They send no message of the topic
-- but park it (0007_parked.sql), and free the parked ones when the topic is resumed. Returns as
-- outbox.publisher_pause.
create function outbox.publisher_pause_topic(of_publisher text, of_topic text, pauses boolean, new_reason text,
	new_caller text default null) returns bigint language plpgsql volatile security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
	publisher_row outbox.publisher;
	audit_id bigint;
begin
	perform outbox.replay_durable();
	perform of_topic::outbox.topic_name;
	select s.* into publisher_row from outbox.publisher s where s.name = of_publisher for update;
	if publisher_row.name is null then
		raise exception 'publisher % does not exist', of_publisher;
	elsif pauses = coalesce(publisher_row.paused_topics ? of_topic, false) then
		return null;
	elsif pauses and (select count(*) from jsonb_object_keys(publisher_row.paused_topics)) >= 100 then
		raise exception 'publisher % has 100 paused topics already', of_publisher
			using hint = 'resume some, or pause the whole publisher';
	end if;
	update outbox.publisher s set paused_topics = nullif(case when pauses
			then coalesce(s.paused_topics, '{}') || jsonb_build_object(of_topic,
				to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
			else s.paused_topics - of_topic end, '{}')
		where s.name = of_publisher;
	insert into outbox.audit (caller, verb, publisher, target, reason)
	values (new_caller, case when pauses then 'pause' else 'resume' end, of_publisher,
		jsonb_build_object('topic', of_topic), new_reason)
	returning id into audit_id;
	return audit_id;
end
$$;

create function outbox.publisher_drop(of_publisher text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
begin
	delete from outbox.publisher where name = of_publisher;
	if not found then
		raise exception 'publisher % does not exist', of_publisher;
	end if;
	delete from outbox.log where publisher = of_publisher;
	delete from outbox.destination where publisher = of_publisher;
	delete from outbox.parked where publisher = of_publisher and tick >= 0;
	delete from outbox.parked_request where publisher = of_publisher;
	delete from outbox.skipped where publisher = of_publisher;
	delete from outbox.renumbered where publisher = of_publisher;
	delete from outbox.scheduled where publisher = of_publisher and tick >= 0;
end
$$;

-- Where the consoles of processes are ([api] advertise). A process notes its own row when it connects and once an hour.
create table outbox.process (
	name text collate "C" primary key,
	url text not null constraint url_is_scheme_host_and_port check (url ~ '^https?://[^[:space:]/?#@"<>\\]+/?$'),
	seen_at timestamptz not null default clock_timestamp()
);

comment on table outbox.process is 'URLs of the processes that have set `[api] advertise`.';
comment on column outbox.process.name is 'Name of the process, as outbox.progress.owner has it.';
comment on column outbox.process.url is 'URL at which operators reach the process: scheme, host and port.';
comment on column outbox.process.seen_at is 'Time at which the process noted the row last. After a day the row of a '
	'process that owns no shard is deleted.';

create function outbox.process_note(new_name text, new_url text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
	insert into outbox.process (name, url) values (new_name, new_url)
	on conflict (name) do update set url = excluded.url, seen_at = clock_timestamp();
	delete from outbox.process p where p.seen_at < clock_timestamp() - interval '1 day'
		and not exists (select from outbox.progress g where g.owner = p.name and g.lease_until > clock_timestamp())
$$;

-- The [deliver] sections of processes that use this database, and whether an operator has paused them. A process looks
-- once a second. A changed number of orders means a new order, also if it resumes a section that was not paused.
create table outbox.deliver_section (
	name text collate "C" primary key,
	paused_at timestamptz,
	orders bigint not null default 0
);

comment on table outbox.deliver_section is 'Sections of sidecars, and whether an operator has paused them. All '
	'processes that run a section of the name heed it.';
comment on column outbox.deliver_section.name is 'Name of the section: [deliver "NAME"].';
comment on column outbox.deliver_section.paused_at is 'Time at which an operator paused the section. null: it is not '
	'paused.';
comment on column outbox.deliver_section.orders is 'Number of pauses and resumes so far.';

-- Which processes run a section. A process notes its rows when it connects, and once a minute.
create table outbox.deliver_process (
	section text collate "C" not null,
	process text collate "C" not null,
	seen_at timestamptz not null default clock_timestamp(),
	primary key (section, process)
);

comment on table outbox.deliver_process is 'Processes that run a section of a sidecar.';
comment on column outbox.deliver_process.section is 'Name of the section: [deliver "NAME"].';
comment on column outbox.deliver_process.process is 'Name of the process, as outbox.progress.owner has it.';
comment on column outbox.deliver_process.seen_at is 'Time at which the process noted the row last. A row that is older than '
	'ten minutes counts no longer, and is deleted.';

create function outbox.deliver_note(names text[], of_process text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
	insert into outbox.deliver_section (name) select n from unnest(names) n on conflict (name) do nothing;
	insert into outbox.deliver_process (section, process) select n, of_process from unnest(names) n
	on conflict (section, process) do update set seen_at = clock_timestamp();
	delete from outbox.deliver_process p where p.seen_at < clock_timestamp() - interval '10 minutes'
$$;

-- Pauses a section, or resumes it. is_known: the caller's configuration has it; otherwise a process must have noted it.
-- changed: false: it was paused, or not paused, before. audit: id of the row in outbox.audit, which names the process
-- that took the order.
create function outbox.deliver_order(of_section text, pauses boolean, is_known boolean, of_process text, new_reason text,
	new_caller text, out changed boolean, out audit bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
begin
	perform outbox.replay_durable();
	if is_known then
		insert into outbox.deliver_section (name) values (of_section) on conflict (name) do nothing;
	end if;
	select pauses <> (s.paused_at is not null) into changed
		from outbox.deliver_section s where s.name = of_section for update;
	if changed is null then
		raise exception 'no process with this database has run a section [deliver "%"]', of_section;
	end if;
	update outbox.deliver_section s set orders = s.orders + 1,
			paused_at = case when pauses then coalesce(s.paused_at, clock_timestamp()) end
		where s.name = of_section;
	insert into outbox.audit (caller, verb, target, reason)
	values (new_caller, case when pauses then 'deliver pause' else 'deliver resume' end,
		jsonb_build_object('section', of_section, 'process', of_process), new_reason)
	returning id into audit;
end
$$;

-- They run as the schema's owner: only roles that are granted them (roles.sql) may call them.
revoke execute on function
	outbox.publisher_create(text, int, text), outbox.publisher_split_begin(text, int),
	outbox.publisher_split_bound(text), outbox.publisher_split_cancel(text), outbox.publisher_split_finish(text),
	outbox.publisher_pause(text, boolean, text, text),
	outbox.publisher_pause_topic(text, text, boolean, text, text), outbox.publisher_drop(text),
	outbox.process_note(text, text), outbox.deliver_note(text[], text),
	outbox.deliver_order(text, boolean, boolean, text, text, text) from public;

select outbox.publisher_create('main', 1, 'beginning');
