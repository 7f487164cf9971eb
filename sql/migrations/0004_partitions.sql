-- oldest-program: 0.1.0
--
-- Making, emptying, dropping and detaching partitions of the tables that grow with time (those of
-- outbox.partitioned) and of the log.
--
-- A writer never waits more than 50 ms for any of this. CREATE ... PARTITION OF, DROP and DETACH need
-- ACCESS EXCLUSIVE on the parent, and behind such a lock, while it waits, every insert waits as well.
-- So each function is one short transaction that waits at most lock_timeout for its first lock,
-- takes the others without waiting, and otherwise returns 'busy': the caller tries again later.
-- Each returns its outcome: no expected outcome is an error.
--
-- They run as the schema's owner, so that the relay's role owns nothing and can do nothing else.
-- They must be called alone in a READ COMMITTED transaction, since the checks below need snapshots
-- that are taken after their locks.
--
-- Why no row is lost with a leaf. P is a snapshot, taken first. Then a query without a lock searches for
-- rows that are still needed (a message that some shard has not acknowledged, a prepare that is not
-- decided, an id whose window has not passed); that query began after P, and so saw every row visible in
-- P. Then comes the ACCESS EXCLUSIVE lock, under which no transaction that wrote into the leaf is in
-- progress, and a search with a fresh snapshot for rows that are not visible in P, which are those whose
-- txid is in P's list of transactions in progress or not below its xmax: a few probes of an index that
-- begins with txid. If there is one, it was committed meanwhile, and the leaf stays. This requires that
-- no change of a row makes it needed again, and that each row has the txid of its transaction.
--
-- Why no reader misses a row that is moved. TRUNCATE empties the table for older snapshots too, and
-- the copies are invisible to them. So a reader locks the table (and with it every partition) in
-- ACCESS SHARE mode before it takes the snapshot that it reads with: either the move waits for it, or
-- its snapshot sees the copies. A row is copied as it is, with the columns that order messages.
--
-- Why no insert fails when a row is moved. An insert looks up its partition when it begins and locks
-- it later; one that waits for the default partition while its row's range is given to a new one is
-- refused by the server. So a partition whose range can be written now is attached under ACCESS
-- EXCLUSIVE on the parent, where an insert waits before it looks anything up.

create function outbox.log_partition_rows() returns bigint
	immutable parallel safe language sql as 'select bigint ''1000000''';

-- The start of the period of this width that a time lies in. Days begin at midnight UTC.
create function outbox.partition_floor(at timestamptz, width interval) returns timestamptz
	immutable parallel safe language sql set search_path = pg_catalog, pg_temp as $$
	select to_timestamp(floor(extract(epoch from at)::numeric / extract(epoch from width)::numeric)
		* extract(epoch from width)::numeric) $$;
comment on function outbox.partition_floor(timestamptz, interval) is 'Returns the start of the period of this width '
	'that contains a time. Days begin at midnight UTC.';

-- Whether partitions are made for this time. A row of any other time (infinite, or at the ends of the
-- calendar, which cannot be rounded to periods) stays in the default partition and is in nobody's way.
create function outbox.partition_takes(at timestamptz) returns boolean
	immutable parallel safe language sql as $$
	select at >= '0001-01-01 00:00:00Z' and at < '10000-01-01 00:00:00Z' $$;

-- The tables kept in partitions by time. Each has a default partition, message_default; a function
-- message_holder(leaf), which names who needs a row of the partition (null: nobody); and a column txid
-- with an index that begins with it.
create function outbox.partitioned(out name text, out time_column text)
	returns setof record immutable parallel safe language sql as $$
	values ('message', 'created_at'), ('lookback', 'prepared_at'), ('processed', 'record_at'),
		('unique_ledger', 'at') $$;
comment on function outbox.partitioned() is 'Returns the tables that are partitioned by time, with the column of '
	'each.';

create function outbox.partition_time_column(of_table text) returns text
	immutable parallel safe language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
	found text := (select k.time_column from outbox.partitioned() k where k.name = of_table);
begin
	if found is null then
		raise exception '% is no table that is kept in partitions', coalesce(of_table, 'null')
			using errcode = 'invalid_parameter_value';
	end if;
	return found;
end $$;
comment on function outbox.partition_time_column(text) is 'Returns the column by which a table is partitioned by '
	'time.';

-- message_p20260102, or message_p20260102T030405 when it does not begin at midnight UTC.
create function outbox.partition_name(of_table text, from_at timestamptz) returns text
	immutable parallel safe language sql set search_path = pg_catalog, pg_temp as $$
	select of_table || '_p' || to_char(at, 'YYYYMMDD')
		|| case when at::time = '00:00' then '' else to_char(at, '"T"HH24MISS') end
	from (select from_at at time zone 'UTC') as utc (at) $$;

-- The partitions of a table except the default one, oldest first.
create function outbox.partitions(of_table text, out name text, out from_at timestamptz,
	out to_at timestamptz)
	returns setof record stable language sql
	set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
	select c.relname::text,
		coalesce(substring(b.bound from 'FROM [(]''(.+)''[)] TO')::timestamptz, '-infinity'),
		coalesce(substring(b.bound from 'TO [(]''(.+)''[)]')::timestamptz, 'infinity')
	from pg_inherits i
	join pg_class c on c.oid = i.inhrelid
	cross join lateral pg_get_expr(c.relpartbound, c.oid) as b (bound)
	where b.bound <> 'DEFAULT' and i.inhparent = (
		select to_regclass('outbox.' || k.name) from outbox.partitioned() k where k.name = of_table)
	order by 2 $$;
comment on function outbox.partitions(text) is 'Returns the partitions of such a table, without the default '
	'partition, oldest first.';

create function outbox.log_partitions(out name text, out publisher text, out shard int,
	out from_n bigint, out to_n bigint)
	returns setof record stable language sql set search_path = pg_catalog, pg_temp as $$
	select c.relname::text, b.part[1], b.part[2]::int, b.part[3]::bigint, b.part[4]::bigint
	from pg_inherits i
	join pg_class c on c.oid = i.inhrelid
	cross join lateral regexp_match(pg_get_expr(c.relpartbound, c.oid),
		'FROM [(]''(.*)'', ([0-9]+), ''?([0-9]+)''?[)] TO [(]''.*'', [0-9]+, ''?([0-9]+)''?[)]') as b (part)
	where i.inhparent = 'outbox.log'::regclass
	order by 2, 3, 4 $$;
comment on function outbox.log_partitions() is 'Returns the partitions of outbox.log, with the row numbers of each.';

-- The locks of upkeep. A transaction that has locked a row does the work of that name, until it ends. Rows of a
-- table and not advisory locks, because every login may hold those: nobody is granted this table.
create table outbox.upkeep_lock (
	work text collate "C" primary key
);
insert into outbox.upkeep_lock (work) values ('partitions'), ('log_partitions'), ('lookback_tidy');
comment on table outbox.upkeep_lock is 'One row for each kind of upkeep that one transaction at a time does.';

-- Takes the lock of this work; waits: until its holder ends. False: another transaction holds it.
create function outbox.upkeep_begin(of_work text, waits boolean) returns boolean
	language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
	if waits then
		perform from outbox.upkeep_lock k where k.work = of_work for update;
	else
		perform from outbox.upkeep_lock k where k.work = of_work for update skip locked;
	end if;
	if found then
		return true;
	elsif not exists (select from outbox.upkeep_lock k where k.work = of_work) then
		raise exception 'the table outbox.upkeep_lock has no row %', of_work;
	end if;
	return false;
end $$;

-- Lists the sessions that hold a lock of upkeep. Each lock is the row's xmax, and the server's table of locks names the
-- session of that transaction, whose savepoints have entries too. pid null: a prepared transaction.
create function outbox.upkeep_holders(out work text, out pid int, out user_name text,
	out application_name text) returns setof record stable language sql security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
	select k.work, l.pid, a.usename::text, a.application_name
	from outbox.upkeep_lock k
	join pg_locks l on l.locktype = 'transactionid' and l.transactionid = k.xmax and l.granted
		and l.mode = 'ExclusiveLock'
	left join pg_stat_activity a on a.pid = l.pid
	order by k.work $$;

-- True if this transaction may change partitions: only one at a time may. The commit does not wait for
-- standbys, since writers wait for it.
create function outbox.partition_begin() returns boolean language plpgsql as $$
begin
	if current_setting('transaction_isolation') <> 'read committed' then
		raise exception 'partitions are changed in READ COMMITTED transactions only'
			using errcode = 'invalid_transaction_state';
	end if;
	perform set_config('synchronous_commit', 'local', true);
	return outbox.upkeep_begin('partitions', false);
end $$;

-- Makes a table like the one that it will be attached to, tuned for rows that are only inserted: a
-- vacuum after every so many rows freezes them, so that nothing must be rewritten before the partition
-- is dropped.
create function outbox.partition_create(of_table text, name text) returns void language plpgsql as $$
begin
	execute format('create table outbox.%I '
		'(like outbox.%I including all excluding identity excluding comments) with ('
		'autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000, '
		'autovacuum_freeze_min_age = 0, toast.autovacuum_vacuum_insert_scale_factor = 0, '
		'toast.autovacuum_vacuum_insert_threshold = 200000, toast.autovacuum_freeze_min_age = 0)',
		name, of_table);
end $$;

create function outbox.partition_attach(of_table text, name text, from_at timestamptz,
	to_at timestamptz) returns void language plpgsql as $$
begin
	execute format('alter table outbox.%I attach partition outbox.%I '
		'for values from (%L) to (%L)', of_table, name, from_at, to_at);
end $$;

-- Locks everybody out of the table, its default partition and, if given, one more. New writers wait
-- behind the first lock; the function takes the other locks at once or fails.
create function outbox.partition_lock(of_table text, leaf text default null) returns void
	language plpgsql as $$
begin
	execute format('lock table only outbox.%I in access exclusive mode', of_table);
	execute format('lock table only outbox.%I in access exclusive mode nowait',
		of_table || '_default');
	if leaf is not null then
		execute format('lock table only outbox.%I in access exclusive mode nowait', leaf);
	end if;
end $$;

-- Rows in the default partition, counted up to a bound.
create function outbox.partition_default_rows(of_table text, bound bigint) returns bigint
	stable language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
	rows bigint;
begin
	perform outbox.partition_time_column(of_table);
	execute format('select count(*) from (select from outbox.%I limit $1) d',
		of_table || '_default') into rows using bound;
	return rows;
end $$;
comment on function outbox.partition_default_rows(text, bigint) is 'Returns the number of rows in the default '
	'partition of a table, counted up to `bound`.';

-- Whether the default partition holds a row that a partition can be made for.
create function outbox.partition_strays(of_table text) returns boolean
	stable language plpgsql as $$
declare
	found boolean;
begin
	execute format('select exists (select from outbox.%I d where outbox.partition_takes(d.%I))',
		of_table || '_default', outbox.partition_time_column(of_table)) into found;
	return found;
end $$;

-- 'made', 'exists', 'overlaps' (another partition holds a part of the range), 'default_not_empty' (its
-- rows must be moved first), 'name_taken' (by a table that is no partition), 'busy'.
create function outbox.partition_make(of_table text, from_at timestamptz, to_at timestamptz)
	returns text language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '15ms'
	set timezone = 'UTC' set datestyle = 'ISO' set row_security = off as $$
declare
	leaf text := outbox.partition_name(of_table, from_at);
begin
	if not outbox.partition_begin() then
		return 'busy';
	end if;
	if not (isfinite(from_at) and isfinite(to_at) and from_at < to_at) then
		raise exception 'a partition goes from a time to a later one'
			using errcode = 'invalid_parameter_value';
	end if;
	if exists (select from outbox.partitions(of_table) p
		where p.from_at = partition_make.from_at and p.to_at = partition_make.to_at) then
		return 'exists';
	elsif exists (select from outbox.partitions(of_table) p
		where p.from_at < partition_make.to_at and p.to_at > partition_make.from_at) then
		return 'overlaps';
	elsif outbox.partition_strays(of_table) then
		return 'default_not_empty';
	end if;
	perform outbox.partition_create(of_table, leaf);
	if from_at < clock_timestamp() + interval '1 minute' then
		perform outbox.partition_lock(of_table);
	end if;
	perform outbox.partition_attach(of_table, leaf, from_at, to_at);
	return 'made';
exception
	when lock_not_available then
		return 'busy';
	when duplicate_table then
		return 'name_taken';
	when check_violation then -- a row was inserted meanwhile
		return 'default_not_empty';
end $$;

-- The table that this is a partition of; null: none.
create function outbox.partition_table(leaf text) returns text language sql stable as $$
	select k.name from outbox.partitioned() k
	where exists (select from outbox.partitions(k.name) p where p.name = leaf) $$;

-- The first shard ("main/0") that has not acknowledged all of its rows in this partition, or whose
-- progress is unknown because its log was carried here from another cluster; 'no publisher' if no
-- publisher exists.
create function outbox.message_holder(leaf text) returns text language plpgsql as $$
declare
	reader record;
	holds boolean;
begin
	for reader in select publisher, shard, shards, ticks[1] as acknowledged, written_elsewhere,
			coalesce(start_at, '-infinity') as start_at
		from outbox.progress order by publisher, shard
	loop
		if reader.written_elsewhere then
			return reader.publisher || '/' || reader.shard;
		end if;
		execute format('select exists (select from outbox.%1$I where txid >= $1
				and created_at >= $5 and bucket >= $3 and bucket < $4)
			or exists (select from outbox.%1$I where txid = any ($2)
				and created_at >= $5 and bucket >= $3 and bucket < $4)', leaf)
			into holds using coalesce(pg_snapshot_xmax(reader.acknowledged), '0'),
				array(select pg_snapshot_xip(reader.acknowledged)),
				outbox.first_bucket(reader.shard, reader.shards),
				outbox.first_bucket(reader.shard + 1, reader.shards), reader.start_at;
		if holds then
			return reader.publisher || '/' || reader.shard;
		end if;
	end loop;
	if not found then
		execute format('select exists (select from outbox.%I)', leaf) into holds;
	end if;
	return case when holds then 'no publisher' end;
end $$;

-- The holder that still needs a partition; null: none.
create function outbox.partition_holder(leaf text) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off set enable_bitmapscan = off set jit = off set row_security = off as $$
declare
	of_table text := outbox.partition_table(leaf);
	holder text;
begin
	if of_table is not null then
		execute format('select outbox.%I($1)', of_table || '_holder') into holder using leaf;
	end if;
	return holder;
end $$;

-- Whether the table has a row that was not visible in the snapshot. The caller holds a lock against
-- writers.
create function outbox.partition_changed(leaf text, since pg_snapshot) returns boolean
	language plpgsql
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
	changed boolean;
begin
	execute format('select exists (select from outbox.%1$I where txid >= $1)
		or exists (select from outbox.%1$I where txid = any ($2))', leaf)
		into changed using pg_snapshot_xmax(since), array(select pg_snapshot_xip(since));
	return changed;
end $$;

-- Empties a partition whose rows nobody needs: 'emptied', 'held' (partition_holder says by whom),
-- 'missing', 'busy'. Locks that partition only. An operator may force it even if rows are still needed.
create function outbox.partition_empty(leaf text, forced boolean default false) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '15ms' set row_security = off as $$
declare
	looked pg_snapshot := pg_current_snapshot();
	of_table text := outbox.partition_table(leaf);
begin
	if not outbox.partition_begin() then
		return 'busy';
	elsif of_table is null then
		return 'missing';
	elsif not forced and outbox.partition_holder(leaf) is not null then
		return 'held';
	elsif pg_relation_size(format('outbox.%I', leaf)::regclass) = 0 then
		return 'emptied'; -- it was emptied before
	end if;
	execute format('lock table only outbox.%I in access exclusive mode', leaf);
	if outbox.partition_changed(leaf, looked) then
		return 'busy';
	end if;
	execute format('truncate only outbox.%I', leaf);
	return 'emptied';
exception
	when lock_not_available then
		return 'busy';
end $$;

-- Drops an emptied partition: 'dropped', 'not_empty', 'missing', 'busy'.
create function outbox.partition_drop(leaf text) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '15ms' set row_security = off as $$
declare
	of_table text := outbox.partition_table(leaf);
begin
	if not outbox.partition_begin() then
		return 'busy';
	elsif of_table is null then
		return 'missing';
	elsif pg_relation_size(format('outbox.%I', leaf)::regclass) > 0 then
		return 'not_empty';
	end if;
	perform outbox.archive_leave(leaf); -- before the lock, and taken back with it
	perform outbox.partition_lock(of_table, leaf);
	if pg_relation_size(format('outbox.%I', leaf)::regclass) > 0 then
		raise exception using errcode = 'OR004';
	end if;
	execute format('drop table outbox.%I', leaf);
	return 'dropped';
exception
	when lock_not_available then
		return 'busy';
	when sqlstate 'OR004' then
		return 'not_empty';
end $$;

-- Turns a partition whose rows nobody needs into a separate table, to be archived: 'detached', 'held',
-- 'missing', 'busy'. An operator may force it where rows are still needed.
create function outbox.partition_detach(leaf text, forced boolean default false) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '15ms' set row_security = off as $$
declare
	looked pg_snapshot := pg_current_snapshot();
	of_table text := outbox.partition_table(leaf);
begin
	if not outbox.partition_begin() then
		return 'busy';
	elsif of_table is null then
		return 'missing';
	elsif not forced and outbox.partition_holder(leaf) is not null then
		return 'held';
	end if;
	perform outbox.archive_leave(leaf); -- before the lock, and taken back with it
	perform outbox.partition_lock(of_table, leaf);
	if outbox.partition_changed(leaf, looked) then
		raise lock_not_available;
	end if;
	execute format('alter table outbox.%I detach partition outbox.%I', of_table, leaf);
	return 'detached';
exception
	when lock_not_available then
		return 'busy';
end $$;

-- Moving rows out of the default partition -------------------------------------------------------
--
-- In one transaction: a table for each stretch of time that no partition covers gets the rows that
-- are there, then those that came meanwhile, until few are left; all this without a lock that a
-- writer meets. Then, under ACCESS EXCLUSIVE on the parent, the last few are copied, the default
-- partition is truncated and the tables are attached. They carry a CHECK of their range, so that
-- attaching one does not read it.

-- The tables to make: one for each gap between partitions in which the default one has rows, as wide
-- as whole periods make it. The gap that holds the present gets room for the next minutes.
create function outbox.rehome_plan(of_table text, width interval, out name text,
	out from_at timestamptz, out to_at timestamptz) returns setof record language plpgsql stable as $$
begin
	return query execute format('
		with gaps as (
			select b.to_at as low, lead(b.from_at) over (order by b.from_at, b.to_at) as high
			from (select p.from_at, p.to_at from outbox.partitions($1) p
				union all values (''-infinity''::timestamptz, ''-infinity''::timestamptz),
					(''infinity'', ''infinity'')) b
		), filled as (
			select g.low, g.high, min(d.%2$I) as oldest, max(d.%2$I) as newest
			from gaps g join outbox.%1$I d on d.%2$I >= g.low and d.%2$I < g.high
				and outbox.partition_takes(d.%2$I)
			where g.low < g.high group by g.low, g.high
		), rounded as (
			select greatest(f.low, outbox.partition_floor(f.oldest, $2)) as from_at,
				least(f.high, outbox.partition_floor(greatest(f.newest, case
					when clock_timestamp() between f.low and f.high
					then clock_timestamp() + interval ''10 minutes'' end), $2) + $2) as to_at
			from filled f
		)
		select outbox.partition_name($1, r.from_at), r.from_at, r.to_at from rounded r order by 2',
		of_table || '_default', outbox.partition_time_column(of_table)) using of_table, width;
end $$;

-- The columns of a table that an INSERT or COPY may write, which are all but the generated ones.
create function outbox.written_columns(of_table text) returns text language sql stable
	set search_path = pg_catalog, pg_temp as $$
	select string_agg(quote_ident(a.attname), ', ' order by a.attnum)
	from pg_attribute a where a.attrelid = format('outbox.%I', of_table)::regclass
		and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' $$;

-- Copies the rows of the default partition that `before` does not show, and `upto` does (null: all),
-- into the tables, and those that no partition takes into message_unplaced. Fails when a row belongs to
-- none of them.
create function outbox.rehome_copy(of_table text, names text[], from_ats timestamptz[],
	to_ats timestamptz[], before pg_snapshot, upto pg_snapshot) returns bigint language plpgsql as $$
declare
	strays text := of_table || '_default';
	at text := outbox.partition_time_column(of_table);
	pending text := format('(txid >= %L or txid = any (%L)) and (%3$L is null or '
		'pg_visible_in_snapshot(txid, %3$L))', pg_snapshot_xmax(before),
		array(select pg_snapshot_xip(before)), upto);
	columns text := outbox.written_columns(of_table);
	copied bigint := 0;
	expected bigint;
	moved bigint;
begin
	for i in 1 .. cardinality(names) loop
		execute format('insert into outbox.%1$I (%2$s) select %2$s from outbox.%3$I '
			'where outbox.partition_takes(%4$I) and %4$I >= %5$L and %4$I < %6$L and %7$s',
			names[i], columns, strays, at, from_ats[i], to_ats[i], pending);
		get diagnostics moved = row_count;
		copied := copied + moved;
	end loop;
	execute format('insert into outbox.%1$I (%2$s) select %2$s from outbox.%3$I '
		'where not outbox.partition_takes(%4$I) and %5$s',
		of_table || '_unplaced', columns, strays, at, pending);
	get diagnostics moved = row_count;
	copied := copied + moved;
	execute format('select count(*) from outbox.%I where %s', strays, pending) into expected;
	if copied <> expected then
		raise exception 'a row lies outside the tables made for it' using errcode = 'OR002';
	end if;
	return copied;
end $$;

-- 'moved', 'empty' (nothing to do), 'busy', 'name_taken' (by a table that is no partition). Rows that
-- no partition takes are put back.
create function outbox.partition_rehome(of_table text, width interval) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '15ms'
	set timezone = 'UTC' set datestyle = 'ISO' set row_security = off as $$
declare
	strays text := of_table || '_default';
	unplaced text := of_table || '_unplaced';
	names text[];
	from_ats timestamptz[];
	to_ats timestamptz[];
	copied_upto pg_snapshot := '3:3:'; -- shows nothing
	latest pg_snapshot;
	copied bigint;
	locked boolean := false;
begin
	if not outbox.partition_begin() then
		return 'busy';
	elsif not outbox.partition_strays(of_table) then
		return 'empty';
	end if;
	-- Is the lock available at all? Copying is useless while a writer's transaction stays open.
	begin
		execute format('lock table only outbox.%I in access exclusive mode', of_table);
		raise exception using errcode = 'OR003';
	exception when sqlstate 'OR003' then -- the savepoint's rollback releases the lock
	end;

	select array_agg(p.name), array_agg(p.from_at), array_agg(p.to_at)
		into names, from_ats, to_ats from outbox.rehome_plan(of_table, width) p;
	if names is null then
		return 'empty'; -- the rows were deleted meanwhile
	end if;
	execute format('create table outbox.%I (like outbox.%I including generated)', unplaced, strays);
	for i in 1 .. cardinality(names) loop
		perform outbox.partition_create(of_table, names[i]);
		execute format('alter table outbox.%I add constraint rehomed check (%I >= %L and %2$I < %4$L)',
			names[i], outbox.partition_time_column(of_table), from_ats[i], to_ats[i]);
	end loop;
	for attempt in 1 .. 10 loop
		latest := pg_current_snapshot();
		copied := outbox.rehome_copy(of_table, names, from_ats, to_ats, copied_upto, latest);
		copied_upto := latest;
		perform set_config('enable_seqscan', 'off', true); -- the remaining rows are found by txid
		continue when copied > 500;
		begin
			perform outbox.partition_lock(of_table);
			locked := true;
			exit;
		exception when lock_not_available then
			perform pg_sleep(0.1);
		end;
	end loop;
	if not locked then
		raise exception using errcode = 'lock_not_available';
	end if;
	perform outbox.rehome_copy(of_table, names, from_ats, to_ats, copied_upto, null);
	execute format('truncate only outbox.%I', strays);
	for i in 1 .. cardinality(names) loop
		perform outbox.partition_attach(of_table, names[i], from_ats[i], to_ats[i]);
		execute format('alter table outbox.%I drop constraint rehomed', names[i]);
	end loop;
	-- from 17 on the identity of a table is that of its partitions
	execute format('insert into outbox.%1$I (%2$s) overriding system value select %2$s from outbox.%3$I',
		strays, outbox.written_columns(of_table), unplaced);
	execute format('drop table outbox.%I', unplaced);
	return 'moved';
exception
	when lock_not_available or sqlstate 'OR002' then
		return 'busy';
	when duplicate_table then
		return 'name_taken';
end $$;

-- The log ----------------------------------------------------------------------------------------
--
-- It is partitioned by (publisher, shard, n), without a default partition. Attaching one keeps no insert
-- waiting; dropping one needs ACCESS EXCLUSIVE on the parent for a moment.

-- Makes the partition in which row n of this shard lies: 'made', 'exists', 'busy'.
create function outbox.log_partition_make(of_publisher text, of_shard int, n bigint) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '2s' set row_security = off as $$
declare
	first_n bigint := n - n % outbox.log_partition_rows();
	leaf text := format('log_%s_%s_%s', case when of_publisher ~ '^[a-z0-9_]{1,30}$' then of_publisher
		else left(md5(of_publisher), 16) end, of_shard, first_n);
begin
	if of_publisher is null or of_shard is null or n is null or of_shard < 0 or n < 0 then
		raise exception 'a log partition is made for a publisher, a shard and a number'
			using errcode = 'invalid_parameter_value';
	end if;
	perform outbox.upkeep_begin('log_partitions', true);
	if exists (select from outbox.log_partitions() p
		where p.publisher = of_publisher and p.shard = of_shard and p.from_n = first_n) then
		return 'exists';
	end if;
	execute format('create table outbox.%I (like outbox.log including all excluding comments) '
		'with (autovacuum_freeze_min_age = 0)', leaf);
	execute format('alter table outbox.log attach partition outbox.%I '
		'for values from (%L, %s, %s) to (%2$L, %3$s, %5$s)', leaf, of_publisher, of_shard, first_n,
		first_n + outbox.log_partition_rows());
	return 'made';
exception
	when lock_not_available then
		return 'busy';
end $$;

-- True for a partition of a dropped publisher; else if there are 1000 rows behind it, and outbox.destination contains
-- every destination of its rows.
create function outbox.log_partition_is_over(of_publisher text, of_shard int, to_n bigint) returns boolean
	stable language sql set search_path = pg_catalog, pg_temp set jit = off as $$
	select not exists (select from outbox.publisher s where s.name = of_publisher)
		or exists (select from outbox.log g where g.publisher = of_publisher and g.shard = of_shard
			and g.n >= to_n + 1000 and g.folded >= to_n - 1) $$;

-- Lists the work that is due: 'make' the partition of row n before the one in use is full, 'drop' the
-- one that holds row n.
create function outbox.log_partitions_due(out action text, out publisher text, out shard int,
	out n bigint) returns setof record stable language sql
	set search_path = pg_catalog, pg_temp set jit = off as $$
	select 'make', p.publisher, p.shard, ahead.n
	from outbox.progress p
	cross join lateral (select p.n + outbox.log_partition_rows() / 2) as ahead (n)
	where p.n is not null and not exists (select from outbox.log_partitions() l
		where l.publisher = p.publisher and l.shard = p.shard
			and ahead.n >= l.from_n and ahead.n < l.to_n)
	union all
	select 'drop', l.publisher, l.shard, l.from_n
	from outbox.log_partitions() l
	where outbox.log_partition_is_over(l.publisher, l.shard, l.to_n) $$;

-- Drops the partition in which row n lies, if that is due: 'dropped', 'held', 'missing', 'busy'.
create function outbox.log_partition_drop(of_publisher text, of_shard int, n bigint) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '15ms' set row_security = off as $$
declare
	leaf record;
begin
	if not outbox.partition_begin() then
		return 'busy';
	end if;
	select p.* into leaf from outbox.log_partitions() p where p.publisher = of_publisher
		and p.shard = of_shard and log_partition_drop.n >= p.from_n and log_partition_drop.n < p.to_n;
	if leaf.name is null then
		return 'missing';
	end if;
	lock table only outbox.log in access exclusive mode;
	if not outbox.log_partition_is_over(of_publisher, of_shard, leaf.to_n) then
		return 'held';
	end if;
	execute format('lock table only outbox.%I in access exclusive mode nowait', leaf.name);
	execute format('drop table outbox.%I', leaf.name);
	return 'dropped';
exception
	when lock_not_available then
		return 'busy';
end $$;

-- The functions that run as the owner are for the relay alone (roles.sql).
revoke execute on function
	outbox.partition_make(text, timestamptz, timestamptz), outbox.partition_holder(text),
	outbox.partition_empty(text, boolean), outbox.partition_drop(text),
	outbox.partition_detach(text, boolean),
	outbox.partition_rehome(text, interval), outbox.log_partition_make(text, int, bigint),
	outbox.log_partition_drop(text, int, bigint), outbox.upkeep_begin(text, boolean),
	outbox.upkeep_holders() from public;

-- Today's partition and tomorrow's; the relay goes on from there. Only these two, because every search
-- for new rows uses the indexes of all partitions.
create function outbox.partitions_begin(of_table text) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
	today timestamptz := outbox.partition_floor(clock_timestamp(), '1 day');
	outcome text;
begin
	for day in 0 .. 1 loop
		-- Autovacuum may hold a catalog for longer than the function waits.
		for attempt in 1 .. 100 loop
			outcome := outbox.partition_make(of_table, today + day * interval '24 hours',
				today + (day + 1) * interval '24 hours');
			exit when outcome <> 'busy';
			perform pg_sleep(0.1);
		end loop;
		if outcome <> 'made' then
			raise exception 'partition of day % of %: %', day, of_table, outcome;
		end if;
	end loop;
end $$;

select outbox.partitions_begin('message');
