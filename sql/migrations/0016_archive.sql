-- oldest-program: 0.1.0
--
-- Archiving of partitions (`retention = archive`). A partition whose rows nobody needs is detached, the
-- relay copies the detached table to a file, reads the file again, and only then drops the table. Each
-- step is one transaction, and outbox.archive says how far an archive is, so that a crash between any two
-- steps loses nothing: the rows are in the table until the transaction that drops it has compared its row
-- count with the one in the checked file.
--
--   waiting   the rows are in a detached table; no checked file exists
--   written   the file is checked; the table is dropped as soon as its lock is free
--   archived  the rows are in the file only
--   loading   a restore copies the file into a table that is no partition yet
--   restored  the rows are in a partition again, until kept_until, and in the file
--
-- A detached table gets a name of its own, since rows of its time may still arrive and get a partition
-- of the old name. A relay that works on an archive holds a lock on its table, so that two relays do not
-- write it at once. Each try has a file name of its own, so that a relay whose connection was lost cannot
-- replace the file of the next one.

create table outbox.archive (
	id         bigint generated always as identity primary key,
	of_table   text collate "C" not null,
	name       text collate "C" not null,
	from_at    timestamptz not null,
	to_at      timestamptz not null,
	state      text collate "C" not null check (state in ('waiting', 'written', 'archived', 'loading', 'restored')),
	leaf       text collate "C",
	host       text,
	folder     text,
	file       text,
	row_count  bigint,
	bytes      bigint,
	file_bytes bigint,
	checksum   text,
	kept_until timestamptz,
	changed_at timestamptz not null default clock_timestamp()
);
comment on table outbox.archive is 'Partitions that were detached to be archived, and their files.';
comment on column outbox.archive.id is 'Number of the archive.';
comment on column outbox.archive.of_table is 'Table of the partition: message or lookback.';
comment on column outbox.archive.name is 'Name of the partition.';
comment on column outbox.archive.from_at is 'Start of the partition''s time range.';
comment on column outbox.archive.to_at is 'End of the partition''s time range, which is not part of it.';
comment on column outbox.archive.state is 'waiting, written, archived, loading or restored.';
comment on column outbox.archive.leaf is 'Table that holds the rows; null: they are in the file only.';
comment on column outbox.archive.host is 'Host of the relay that wrote the file.';
comment on column outbox.archive.folder is 'archive_path of that relay.';
comment on column outbox.archive.file is 'Name of the file in the folder. Each try to write it has another one.';
comment on column outbox.archive.row_count is 'Number of rows in the file.';
comment on column outbox.archive.bytes is 'Size of the uncompressed data.';
comment on column outbox.archive.file_bytes is 'Size of the file.';
comment on column outbox.archive.checksum is 'XXH3 of the file''s header and uncompressed data, 128 bits, in hexadecimal digits.';
comment on column outbox.archive.kept_until is 'Time until which upkeep keeps the restored partition.';
comment on column outbox.archive.changed_at is 'Time of the last change of state.';
create index on outbox.archive (leaf) where leaf is not null;
create index on outbox.archive (of_table, from_at);

-- Only these tables are archived. Rows of the other partitioned tables serve only to recognise copies
-- within a window, and are dropped after it.
create function outbox.archive_takes(of_table text) returns boolean immutable parallel safe language sql
	set search_path = pg_catalog, pg_temp as $$ select of_table in ('message', 'lookback') $$;

-- The role that called a function which runs as the owner.
create function outbox.archive_caller() returns text language sql stable as $$
	select coalesce(nullif(current_setting('role'), 'none'), session_user::text) $$;

-- A restored partition is gone; its rows are in the file only. Called with each partition that is removed.
create function outbox.archive_leave(of_leaf text) returns void language sql as $$
	update outbox.archive a set state = 'archived', leaf = null, kept_until = null, changed_at = clock_timestamp()
	where a.leaf = of_leaf and a.state = 'restored' $$;

-- Detaches a partition whose rows nobody needs: 'detached' (the archiver takes the table over), 'dropped'
-- (it had no rows, or is an unchanged restored one: its rows are in a file), 'held', 'missing', 'busy'.
-- The locks are those of partition_detach.
create function outbox.archive_detach(of_leaf text) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '15ms' set row_security = off as $$
declare
	looked pg_snapshot := pg_current_snapshot();
	table_name text := outbox.partition_table(of_leaf);
	part record;
	restored_rows bigint;
	there bigint;
	next_id bigint;
	next_name text;
	gone boolean;
begin
	if not outbox.partition_begin() then
		return 'busy';
	elsif table_name is null then
		return 'missing';
	elsif not outbox.archive_takes(table_name) then
		raise exception 'partitions of % are dropped, and not archived', table_name
			using errcode = 'invalid_parameter_value';
	elsif outbox.partition_holder(of_leaf) is not null then
		return 'held';
	end if;
	select p.* into part from outbox.partitions(table_name) p where p.name = of_leaf;
	if not (isfinite(part.from_at) and isfinite(part.to_at)) then
		return 'missing';
	end if;
	-- Counted before the lock, which writers would wait for; partition_changed sees what came since.
	select a.row_count into restored_rows from outbox.archive a where a.leaf = of_leaf and a.state = 'restored';
	if restored_rows is not null then
		execute format('select count(*) from outbox.%I', of_leaf) into there;
	end if;

	perform outbox.archive_leave(of_leaf);
	gone := pg_relation_size(format('outbox.%I', of_leaf)::regclass) = 0 or coalesce(there = restored_rows, false);
	if not gone then
		insert into outbox.archive (of_table, name, from_at, to_at, state)
			values (table_name, of_leaf, part.from_at, part.to_at, 'waiting') returning id into next_id;
		next_name := left(of_leaf, 40) || '_archive_' || next_id;
		update outbox.archive a set leaf = next_name where a.id = next_id;
	end if;

	-- As little as possible under the lock. A row that came since takes back what was done before it.
	perform outbox.partition_lock(table_name, of_leaf);
	if outbox.partition_changed(of_leaf, looked) then
		raise lock_not_available;
	elsif gone then
		execute format('drop table outbox.%I', of_leaf);
		return 'dropped';
	end if;
	execute format('alter table outbox.%I detach partition outbox.%I', table_name, of_leaf);
	execute format('alter table outbox.%I rename to %I', of_leaf, next_name);
	return 'detached';
exception
	when lock_not_available then
		return 'busy';
end $$;

-- Locks the table of an archive against every other relay, until the transaction ends: 'locked', 'busy', or
-- 'missing' (another relay has finished it). Takes no transaction id, since the file may take minutes.
create function outbox.archive_lock(of_id bigint, of_file text default null) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '5s' set row_security = off as $$
declare
	table_name text := (select a.leaf from outbox.archive a where a.id = of_id and a.state in ('waiting', 'written'));
begin
	if table_name is null then
		return 'missing';
	end if;
	execute format('lock table outbox.%I in share update exclusive mode', table_name);
	-- A new snapshot: a relay that began a try since then has changed the name of the file.
	if not exists (select from outbox.archive a where a.id = of_id and a.state in ('waiting', 'written')
		and (of_file is null or a.file = of_file)) then
		return 'missing';
	end if;
	return 'locked';
exception
	when lock_not_available then
		return 'busy';
	when undefined_table then
		return 'missing';
end $$;

-- The name of a type in a header. For a domain it is the name of the base type: a COPY has the same bytes for both, and
-- the base type's name has no schema in it.
create function outbox.archive_type(of_type oid) returns text language sql stable
	set search_path = pg_catalog, pg_temp as $$
	select format_type(coalesce(nullif(t.typbasetype, 0), t.oid), null) from pg_type t where t.oid = of_type $$;

-- The header of a file: the table, its range and its columns, by which a restore finds its way in a later schema.
create function outbox.archive_header(of_id bigint) returns text language sql stable
	set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
	select jsonb_build_object('table', a.of_table, 'partition', a.name, 'from', a.from_at, 'to', a.to_at,
		'server', current_setting('server_version'), 'columns', (
			select jsonb_agg(jsonb_build_array(c.attname, outbox.archive_type(c.atttypid)) order by c.attnum)
			from pg_attribute c where c.attrelid = format('outbox.%I', a.leaf)::regclass
				and c.attnum > 0 and not c.attisdropped and c.attgenerated = ''))::text
	from outbox.archive a where a.id = of_id $$;

-- Begins a try to write a file: outcome 'begun', 'busy', 'missing'. Gives the name of the file, that of the
-- last try, the header, the columns and the right to read the table.
create function outbox.archive_begin(of_id bigint, of_host text, of_folder text, out outcome text,
	out new_file text, out old_file text, out header text, out table_name text, out columns text) returns record
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
	leaf text;
begin
	outcome := outbox.archive_lock(of_id);
	if outcome <> 'locked' then
		return;
	end if;
	select a.file, a.leaf into old_file, leaf from outbox.archive a where a.id = of_id;
	-- Random, since files of several databases may be in one folder.
	update outbox.archive a set state = 'waiting', host = of_host, folder = of_folder,
		file = format('%s-%s-%s.copy.zst', a.name, a.id, left(gen_random_uuid()::text, 8)),
		row_count = null, bytes = null, file_bytes = null, checksum = null, changed_at = clock_timestamp()
		where a.id = of_id returning a.file into new_file;
	header := outbox.archive_header(of_id);
	columns := outbox.written_columns(leaf);
	execute format('grant select on outbox.%I to %I', leaf, outbox.archive_caller());
	table_name := quote_ident(leaf);
	outcome := 'begun';
end $$;

-- Drops the table of a checked file: 'archived', 'busy' (somebody reads the table), 'changed' (the table has
-- another number of rows than the file: it must be written again), 'missing'.
create function outbox.archive_drop(of_id bigint, of_file text) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '1s' set row_security = off as $$
declare
	found_archive record;
	there bigint;
begin
	select a.leaf, a.row_count into found_archive from outbox.archive a
		where a.id = of_id and a.state = 'written' and a.file = of_file for update;
	if not found then
		return 'missing';
	end if;
	execute format('lock table outbox.%I in access exclusive mode', found_archive.leaf);
	execute format('select count(*) from outbox.%I', found_archive.leaf) into there;
	if there <> found_archive.row_count then
		update outbox.archive a set state = 'waiting', changed_at = clock_timestamp() where a.id = of_id;
		return 'changed';
	end if;
	execute format('drop table outbox.%I', found_archive.leaf);
	update outbox.archive a set state = 'archived', leaf = null, changed_at = clock_timestamp() where a.id = of_id;
	return 'archived';
exception
	when lock_not_available then
		return 'busy';
end $$;

-- Records a file that was read again and found whole, and drops the table in the same transaction if nobody reads
-- it: 'archived', 'busy' (recorded; archive_drop finishes it), 'changed', 'missing' (another relay took over).
create function outbox.archive_finish(of_id bigint, of_file text, rows_of_file bigint, bytes_of_rows bigint,
	bytes_of_file bigint, checksum_of_file text) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
	update outbox.archive a set state = 'written', row_count = rows_of_file, bytes = bytes_of_rows,
		file_bytes = bytes_of_file, checksum = checksum_of_file, changed_at = clock_timestamp()
		where a.id = of_id and a.state = 'waiting' and a.file = of_file;
	if not found then
		return 'missing';
	end if;
	return outbox.archive_drop(of_id, of_file);
end $$;

-- Restoring ----------------------------------------------------------------------------------------

-- Makes an empty table for the rows of a file, which the caller may fill: outcome 'begun', 'there' (the rows are in
-- a partition now), 'waiting' (in a detached table), 'overlaps' (`detail`: the partition in its range), 'table' and
-- 'column' (`detail`: the name that this schema does not have), 'busy'.
create function outbox.restore_begin(header jsonb, rows_of_file bigint, bytes_of_rows bigint, bytes_of_file bigint,
	checksum_of_file text, of_host text, of_folder text, of_file text, out outcome text, out detail text,
	out archive_id bigint, out table_name text, out columns text) returns record
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '5s'
	set timezone = 'UTC' set datestyle = 'ISO' set row_security = off as $$
declare
	to_table text := header ->> 'table';
	lower timestamptz := header ->> 'from';
	upper timestamptz := header ->> 'to';
	next_leaf text;
	known record;
begin
	if not exists (select from outbox.partitioned() k where k.name = to_table and outbox.archive_takes(k.name))
		or lower is null or upper is null or not (isfinite(lower) and isfinite(upper) and lower < upper) then
		outcome := 'table';
		detail := coalesce(to_table, 'null');
		return;
	end if;
	-- Columns match by name and type. Columns that came later get their defaults.
	detail := (select string_agg(format('%s %s', h.part ->> 0, h.part ->> 1), ', ')
		from jsonb_array_elements(header -> 'columns') h (part)
		where not exists (select from pg_attribute c where c.attrelid = format('outbox.%I', to_table)::regclass
			and c.attnum > 0 and not c.attisdropped and c.attname = h.part ->> 0
			and outbox.archive_type(c.atttypid) = h.part ->> 1));
	if detail is not null then
		outcome := 'column';
		return;
	end if;
	columns := (select string_agg(quote_ident(h.part ->> 0), ', ' order by h.place)
		from jsonb_array_elements(header -> 'columns') with ordinality h (part, place));

	select a.* into known from outbox.archive a where a.of_table = to_table and a.from_at = lower
		and a.to_at = upper and a.checksum = checksum_of_file for update;
	if known.state in ('waiting', 'written') then
		outcome := 'waiting';
		detail := known.leaf;
		return;
	elsif known.state = 'restored' then
		outcome := 'there';
		detail := known.leaf;
		return;
	end if;
	-- An interrupted restore left its table behind, which must not stay if this one is refused.
	if known.state = 'loading' then
		execute format('drop table if exists outbox.%I', known.leaf);
		update outbox.archive a set state = 'archived', leaf = null, changed_at = clock_timestamp()
			where a.id = known.id;
	end if;
	detail := (select p.name from outbox.partitions(to_table) p
		where p.from_at < upper and p.to_at > lower order by p.from_at limit 1);
	if detail is not null then
		outcome := 'overlaps';
		return;
	end if;

	archive_id := known.id;
	if archive_id is null then
		insert into outbox.archive (of_table, name, from_at, to_at, state, host, folder, file, row_count, bytes,
				file_bytes, checksum)
			values (to_table, coalesce(header ->> 'partition', outbox.partition_name(to_table, lower)), lower, upper,
				'archived', of_host, of_folder, of_file, rows_of_file, bytes_of_rows, bytes_of_file,
				checksum_of_file) returning id into archive_id;
	end if;
	-- Random: a restore that this one replaces must not take this table for its own.
	next_leaf := format('%s_restore_%s_%s', outbox.partition_name(to_table, lower), archive_id,
		left(gen_random_uuid()::text, 8));
	table_name := quote_ident(next_leaf);
	perform outbox.partition_create(to_table, next_leaf);
	-- Attaching the table later need not read it.
	execute format('alter table outbox.%I add constraint restored check (%I >= %L and %2$I < %4$L)', next_leaf,
		outbox.partition_time_column(to_table), lower, upper);
	execute format('grant insert on outbox.%I to %I', next_leaf, outbox.archive_caller());
	update outbox.archive a set state = 'loading', leaf = next_leaf, changed_at = clock_timestamp()
		where a.id = archive_id;
	outcome := 'begun';
exception
	when lock_not_available then
		outcome := 'busy';
end $$;

-- In the transaction that filled the table: has it all rows? False also after another restore has begun. No publisher may take them for new messages, also if their
-- transaction ids are of another cluster or of a lost timeline. So if a publisher would, all of them get the id of
-- frozen rows, 2, which every snapshot shows.
create function outbox.restore_check(of_id bigint, filled text) returns boolean
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
	found_archive record;
	there bigint;
	holder text;
begin
	select a.leaf, a.of_table, a.row_count into found_archive from outbox.archive a
		where a.id = of_id and a.state = 'loading' and quote_ident(a.leaf) = filled for update;
	if not found then
		return false;
	end if;
	execute format('select count(*) from outbox.%I', found_archive.leaf) into there;
	if there <> found_archive.row_count then
		return false;
	end if;
	execute format('select outbox.%I($1)', found_archive.of_table || '_holder') into holder using found_archive.leaf;
	if holder is not null or exists (select from outbox.progress p where p.written_elsewhere) then
		execute format('update outbox.%I set txid = ''2''', found_archive.leaf);
	end if;
	execute format('revoke insert on outbox.%I from %I', found_archive.leaf, outbox.archive_caller());
	return true;
end $$;

-- Attaches the filled table: 'restored', 'busy', 'overlaps', 'default_not_empty', 'missing' (another restore has begun).
-- Its range lies behind every writer, so that no insert needs the locks for long.
create function outbox.restore_end(of_id bigint, filled text, kept interval) returns text
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set lock_timeout = '15ms'
	set timezone = 'UTC' set datestyle = 'ISO' set row_security = off as $$
declare
	found_archive record;
	partition text;
begin
	if not outbox.partition_begin() then
		return 'busy';
	end if;
	select a.* into found_archive from outbox.archive a
		where a.id = of_id and a.state = 'loading' and quote_ident(a.leaf) = filled for update;
	if not found then
		return 'missing';
	end if;
	partition := outbox.partition_name(found_archive.of_table, found_archive.from_at);
	if exists (select from outbox.partitions(found_archive.of_table) p
		where p.from_at < found_archive.to_at and p.to_at > found_archive.from_at) then
		return 'overlaps';
	end if;
	if found_archive.to_at > clock_timestamp() - interval '1 minute' then
		perform outbox.partition_lock(found_archive.of_table);
	end if;
	execute format('alter table outbox.%I rename to %I', found_archive.leaf, partition);
	perform outbox.partition_attach(found_archive.of_table, partition, found_archive.from_at, found_archive.to_at);
	execute format('alter table outbox.%I drop constraint restored', partition);
	update outbox.archive a set state = 'restored', leaf = partition, kept_until = clock_timestamp() + kept,
		changed_at = clock_timestamp() where a.id = of_id;
	return 'restored';
exception
	when lock_not_available then
		return 'busy';
	when check_violation then -- a row of this range is in the default partition
		return 'default_not_empty';
	when duplicate_table then
		return 'overlaps';
end $$;

revoke execute on function outbox.archive_detach(text), outbox.archive_lock(bigint, text),
	outbox.archive_begin(bigint, text, text), outbox.archive_drop(bigint, text),
	outbox.archive_finish(bigint, text, bigint, bigint, bigint, text),
	outbox.restore_begin(jsonb, bigint, bigint, bigint, text, text, text, text), outbox.restore_check(bigint, text),
	outbox.restore_end(bigint, text, interval) from public;
