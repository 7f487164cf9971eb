-- oldest-program: 0.1.0
--
-- The ids that consumers have processed: the table of the `postgres` store of dedup, and the functions
-- by which the store, or an application in any language, recognises copies of a message.
--
-- A row is kept in the partition of its record's time, which is the same whenever the record comes,
-- by the functions of 0004_partitions.sql. No constraint can make an id unique in partitions by time,
-- since it would have to hold the time. Locks do: a caller that queries or records an id first takes the
-- advisory lock of that name and id, and only then searches the window. So of two callers with the same
-- id one waits, or learns that another one has it, and the search of the second, whose snapshot is newer
-- than its lock, sees the rows that the first has committed. That holds only in READ COMMITTED, where
-- each statement of a function has its own snapshot; a transaction of any other level is refused.
--
--   processed_take       in the transaction of the effect, with locks that end with it: the row is
--                        committed with the effect or not at all, which makes the effect exactly once
--   processed_claim      in its own session, with locks of the session: the id is being handled
--   processed_add        the claimed id was handled
--   processed_give_back  the claimed id was not handled
--
-- Both ways use the same locks, so that they may be used together. Locks are taken in the order of their
-- numbers, so that two batches with common ids wait for each other but do not deadlock. Each is an entry
-- in the server's table of locks, which has room for max_locks_per_transaction * (max_connections +
-- max_prepared_transactions) of them, for everybody: hence 1,000 ids a transaction, or a session, at
-- most.
--
-- key: the first 64 bits of a SHA-256, the same on any server that a dump is carried to. Rows are
-- found by it, and the name and the id are compared after that. The number of a lock is a SHA-256 of the key
-- and a secret of this schema: every login can hold advisory locks, and must not know the number of an id.
--
-- A name belongs to one role (outbox.consumer): no other role takes, holds, keeps or removes its ids.

create domain outbox.processed_name as text collate "C"
	constraint name_has_1_to_100_bytes check (octet_length(value) between 1 and 100);
comment on domain outbox.processed_name is 'Name of a consumer: 1 to 100 bytes.';
create domain outbox.processed_id as bytea
	constraint id_has_1_to_1024_bytes check (octet_length(value) between 1 and 1024);
comment on domain outbox.processed_id is 'Id of a message: 1 to 1024 bytes.';

create table outbox.consumer (
	name  outbox.processed_name primary key,
	owner text not null,
	since timestamptz not null default clock_timestamp()
);

comment on table outbox.consumer is 'The role that owns each name of processed ids and claims.';
comment on column outbox.consumer.name is 'Name of the consumer.';
comment on column outbox.consumer.owner is 'Role whose members may use the name. If the role no longer exists, the '
	'next role that uses the name owns it.';
comment on column outbox.consumer.since is 'Time at which the role got the name.';

-- No role is granted it.
create table outbox.processed_secret (value bytea not null);
insert into outbox.processed_secret (value)
select sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'));

create table outbox.processed (
	name         outbox.processed_name not null,
	id           outbox.processed_id not null,
	key          bigint not null,
	record_at    timestamptz not null,
	processed_at timestamptz not null default clock_timestamp(),
	kept_until   timestamptz not null,
	txid         xid8 not null default pg_current_xact_id()
) partition by range (record_at);

create index on outbox.processed (key);
create index on outbox.processed (txid);

comment on table outbox.processed is 'Ids of messages that consumers have processed.';
comment on column outbox.processed.name is 'Name of the consumer. Ids of different consumers are independent.';
comment on column outbox.processed.id is 'Id of the message.';
comment on column outbox.processed.key is 'First 64 bits of a SHA-256 of name and id.';
comment on column outbox.processed.record_at is 'Time of the record, but not after the time at which the row was '
	'written. The table is partitioned by it.';
comment on column outbox.processed.processed_at is 'Time at which the row was written.';
comment on column outbox.processed.kept_until is 'End of the consumer''s window. The row''s partition is kept at '
	'least until then.';
comment on column outbox.processed.txid is 'Id of the top-level transaction that wrote the row, never of a '
	'savepoint.';

-- Takes the rows that fit into no other partition, so that an insert never fails. Normally empty.
create table outbox.processed_default
	(like outbox.processed including all excluding identity excluding comments)
	with (autovacuum_freeze_min_age = 0);
-- the range of no other partition has such a time
alter table outbox.processed_default
	add constraint record_at_is_finite check (isfinite(record_at));
alter table outbox.processed attach partition outbox.processed_default default;

-- The name of a consumer whose window has not passed since it processed a row of the partition; null:
-- there is none. A record that is older than its partition's retention may have been processed a
-- moment ago, and come again. The newest rows are checked first, because they usually decide.
create function outbox.processed_holder(leaf text) returns text language plpgsql
	set enable_seqscan = on set jit = off as $$
declare
	holder text;
begin
	execute format('select l.name from (select p.name, p.kept_until from outbox.%I p '
		'order by p.txid desc limit 1) l where l.kept_until > clock_timestamp()', leaf) into holder;
	if holder is null then
		execute format('select p.name from outbox.%I p where p.kept_until > $1 limit 1', leaf)
			into holder using clock_timestamp();
	end if;
	return holder;
end $$;

create function outbox.processed_key(name text, id bytea) returns bigint
	immutable parallel safe language sql as $$
	select ('x' || encode(substr(sha256(convert_to(name, 'UTF8') || decode('00', 'hex') || id), 1, 8),
		'hex'))::bit(64)::bigint $$;

create function outbox.processed_keys(name text, ids bytea[]) returns bigint[]
	immutable parallel safe language sql as $$
	select array_agg(outbox.processed_key(name, i.id) order by i.n)
	from unnest(ids) with ordinality as i (id, n) $$;

-- The number of the lock of each key.
create function outbox.processed_locks(keys bigint[]) returns bigint[] stable language sql as $$
	select array_agg(('x' || encode(substr(sha256(s.value || int8send(k.key)), 1, 8), 'hex'))::bit(64)::bigint
		order by k.n)
	from unnest(keys) with ordinality as k (key, n) cross join outbox.processed_secret s $$;

-- Fails unless the caller may use the name. The first role that uses a name owns it: the group by which the
-- caller is a consumer, so that the logins of a group share the group's names, or the caller itself. The
-- schema's owner and superusers may use each name, and own none. When two roles use a new name at once, the second
-- waits for the first one's transaction.
create function outbox.consumer_check(of_name text) returns void language plpgsql as $$
declare
	-- the caller of the function that runs as the schema's owner
	caller text := coalesce(nullif(current_setting('role'), 'none'), session_user);
	now_owner text;
	new_owner text;
begin
	if pg_has_role(caller, current_user, 'member') then
		return;
	end if;
	for attempt in 1 .. 2 loop
		select c.owner into now_owner from outbox.consumer c where c.name = of_name;
		if exists (select from pg_roles r where r.rolname = now_owner) then
			exit;
		end if;
		new_owner := coalesce((select min(g.rolname) from pg_auth_members m
				join pg_roles r on r.oid = m.roleid join pg_roles g on g.oid = m.member
			where r.rolname = 'outbox_consumer' and g.rolname <> caller
				and pg_has_role(caller, g.oid, 'member')), caller);
		insert into outbox.consumer as c (name, owner) values (of_name, new_owner)
		on conflict (name) do update set owner = excluded.owner, since = clock_timestamp()
			where c.owner = now_owner;
	end loop;
	if now_owner is null or not pg_has_role(caller, now_owner, 'member') then
		raise exception 'the name "%" belongs to the role %', of_name, now_owner using
			errcode = 'insufficient_privilege',
			hint = 'choose another name, or change the owner in the table outbox.consumer';
	end if;
end $$;

-- Refuses arguments for which no search could be right.
create function outbox.processed_guard(name text, ids bytea[], record_at timestamptz[], remember interval)
	returns void language plpgsql as $$
begin
	if current_setting('transaction_isolation') <> 'read committed' then
		raise exception 'ids are taken in READ COMMITTED transactions only' using
			errcode = 'invalid_transaction_state',
			hint = 'at any other level what was committed during the wait for a lock is not seen';
	elsif current_setting('transaction_read_only')::boolean then
		raise exception 'ids cannot be recorded in a read-only transaction'
			using errcode = 'read_only_sql_transaction';
	elsif remember > interval '3650 days' then
		raise exception 'ids are kept for 3650 days at most, and not for %', remember
			using errcode = 'invalid_parameter_value';
	elsif cardinality(ids) > 1000 then
		raise exception 'at most 1000 ids are taken at a time, and here are %', cardinality(ids)
			using errcode = 'program_limit_exceeded',
				hint = 'each takes a lock of the server: take fewer in more transactions';
	elsif cardinality(ids) <> cardinality(record_at) or array_position(ids, null) is not null then
		raise exception 'each id has a time of its record, and none is null'
			using errcode = 'invalid_parameter_value';
	end if;
	perform outbox.consumer_check(name);
end $$;

-- For each of these ids, in order: is it recorded, with a record's time within `remember` of the given
-- one? The caller has their locks. A statement of its own in a volatile function, so that its snapshot
-- is newer than the locks of ids and of tables (0004_partitions.sql). It is planned anew each time, with
-- the window in it: so it opens and locks only the partitions that the window lies in, and the upkeep of
-- all others waits for no consumer's transaction. The right plan is known: an index look-up.
create function outbox.processed_found(name text, ids bytea[], keys bigint[],
	record_at timestamptz[], remember interval) returns boolean[] language plpgsql
	set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
	set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
	low timestamptz := (select min(a) from unnest(record_at) a) - remember;
	high timestamptz := (select max(a) from unnest(record_at) a) + remember;
	found boolean[];
begin
	select array_agg(exists (select from outbox.processed p
			where p.key = w.key and p.id = w.id and p.name = processed_found.name
				and p.record_at >= low and p.record_at <= high
				and p.record_at >= w.at - remember and p.record_at <= w.at + remember)
		order by w.n)
		into found from unnest(ids, keys, record_at) with ordinality as w (id, key, at, n);
	return found;
end $$;

-- A record's time as it is kept: never beyond now; null is now.
create function outbox.processed_times(record_at timestamptz[]) returns timestamptz[]
	language sql as $$
	select array_agg(least(a.at, clock_timestamp()) order by a.n)
	from unnest(record_at) with ordinality as a (at, n) $$;

create function outbox.processed_insert(name text, ids bytea[], keys bigint[],
	record_at timestamptz[], remember interval, wanted boolean[]) returns void language plpgsql
	set search_path = pg_catalog, pg_temp as $$
begin
	insert into outbox.processed (name, id, key, record_at, kept_until)
	select processed_insert.name, w.id, w.key, w.at, clock_timestamp() + remember
	from unnest(ids, keys, processed_insert.record_at, wanted) as w (id, key, at, wanted)
	where w.wanted;
end $$;

-- Records these ids in this transaction, and returns for each, in order: true, it is new and recorded;
-- false, a copy of it was processed within `remember` of its record's time. For two copies in one call
-- the second is false. Waits while another transaction has one of these ids: its end decides.
create function outbox.processed_take(name text, ids bytea[], record_at timestamptz[],
	remember interval) returns boolean[] language plpgsql security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
	taken int := coalesce(nullif(current_setting('outbox.processed_taken', true), ''), '0')::int
		+ coalesce(cardinality(ids), 0);
	keys bigint[];
	times timestamptz[];
	fresh boolean[];
begin
	perform outbox.processed_guard(name, ids, record_at, remember);
	if taken > 1000 then
		raise exception 'at most 1000 ids are taken in a transaction, and here are %', taken
			using errcode = 'program_limit_exceeded',
				hint = 'each takes a lock of the server: take fewer in more transactions';
	end if;
	perform set_config('outbox.processed_taken', taken::text, true);
	keys := outbox.processed_keys(name, ids);
	times := outbox.processed_times(record_at);
	perform pg_advisory_xact_lock(k.lock)
	from (select distinct a as lock from unnest(outbox.processed_locks(keys)) a order by 1) k;

	fresh := outbox.processed_found(name, ids, keys, times, remember);
	select array_agg(not w.found and w.copy = 1 order by w.n) into fresh
	from (select u.n, u.found, row_number() over (partition by u.id order by u.n) as copy
		from unnest(ids, fresh) with ordinality as u (id, found, n)) w;
	perform outbox.processed_insert(name, ids, keys, times, remember, fresh);
	return coalesce(fresh, '{}');
end $$;
comment on function outbox.processed_take(text, bytea[], timestamptz[], interval) is 'Records ids in the transaction '
	'of the caller. Returns for each id, in order: true if it is new; false if a copy was processed within '
	'`remember` of its record''s time. For two copies in one call, the second result is false. Waits for another '
	'transaction that has taken one of the ids. At most 1000 ids per transaction.';

-- In a session of its own -----------------------------------------------------------------------
--
-- Each of these is called alone, in autocommit: a lock of the session outlives its transaction, and the
-- rows that a lock protects must be committed before it is released. If one of them fails, the caller
-- cannot know which locks it has, and ends the session.

-- For each id, in order: 0, it is new, and claimed by this session until processed_add or
-- processed_give_back; 1, another session has it; 2, a copy of it was processed. The ids must differ,
-- and this session must not have claimed them before. Never waits.
create function outbox.processed_claim(name text, ids bytea[], record_at timestamptz[],
	remember interval) returns int[] language plpgsql security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
	keys bigint[] := outbox.processed_keys(name, ids);
	locks bigint[] := outbox.processed_locks(keys);
	had boolean[];
	found boolean[];
begin
	perform outbox.processed_guard(name, ids, record_at, remember);
	select array_agg(pg_try_advisory_lock(k.lock) order by k.n)
		into had from unnest(locks) with ordinality as k (lock, n);
	found := outbox.processed_found(name, ids, keys, outbox.processed_times(record_at), remember);
	perform pg_advisory_unlock(k.lock)
	from unnest(locks, had, found) as k (lock, had, found) where k.had and k.found;
	return array(select case when k.found then 2 when k.had then 0 else 1 end
		from unnest(had, found) with ordinality as k (had, found, n) order by k.n);
end $$;
comment on function outbox.processed_claim(text, bytea[], timestamptz[], interval) is 'Claims ids for this session, '
	'until processed_add or processed_give_back. Returns for each id, in order: 0 if it is new and claimed; 1 if '
	'another session has it; 2 if a copy was processed. Never waits. Call it in autocommit, with different ids that '
	'the session has not claimed before.';

-- Records ids that this session has claimed. The locks of the session become locks of this transaction,
-- which the server releases after the rows are visible.
create function outbox.processed_add(name text, ids bytea[], record_at timestamptz[],
	remember interval) returns void language plpgsql security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
	keys bigint[] := outbox.processed_keys(name, ids);
begin
	perform outbox.processed_guard(name, ids, record_at, remember);
	perform outbox.processed_insert(name, ids, keys, outbox.processed_times(record_at), remember,
		array_fill(true, array[cardinality(ids)]));
	if not (select bool_and(pg_try_advisory_xact_lock(k.lock) and pg_advisory_unlock(k.lock))
			from unnest(outbox.processed_locks(keys)) as k (lock)) then
		raise exception 'this session has not claimed the ids that it records'
			using errcode = 'lock_not_available';
	end if;
end $$;
comment on function outbox.processed_add(text, bytea[], timestamptz[], interval) is 'Records as processed the '
	'ids that this session has claimed, and releases the claims. Call it in autocommit.';

-- Releases claimed ids.
create function outbox.processed_give_back(name text, ids bytea[]) returns void
	language plpgsql security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
begin
	perform pg_advisory_unlock(k.lock)
	from unnest(outbox.processed_locks(outbox.processed_keys(name, ids))) as k (lock);
end $$;
comment on function outbox.processed_give_back(text, bytea[]) is 'Releases claimed ids without recording them. Call '
	'it in autocommit.';

-- Forgets processed ids. Returns the number of deleted rows.
create function outbox.processed_remove(name text, ids bytea[]) returns bigint
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
	set row_security = off as $$
declare
	removed bigint;
begin
	perform outbox.consumer_check(name);
	delete from outbox.processed p
	using unnest(ids, outbox.processed_keys(processed_remove.name, ids)) as w (id, key)
	where p.key = w.key and p.id = w.id and p.name = processed_remove.name;
	get diagnostics removed = row_count;
	return removed;
end $$;
comment on function outbox.processed_remove(text, bytea[]) is 'Forgets processed ids. Returns the number of deleted '
	'rows.';

-- The functions that run as the owner are for consumers alone (roles.sql).
revoke execute on function
	outbox.processed_take(text, bytea[], timestamptz[], interval),
	outbox.processed_claim(text, bytea[], timestamptz[], interval),
	outbox.processed_add(text, bytea[], timestamptz[], interval),
	outbox.processed_give_back(text, bytea[]),
	outbox.processed_remove(text, bytea[]) from public;

-- And yesterday's: a window that is covered by partitions locks no default one.
do $$
declare
	today timestamptz := outbox.partition_floor(clock_timestamp(), '1 day');
begin
	perform outbox.partitions_begin('processed');
	for attempt in 1 .. 100 loop
		exit when outbox.partition_make('processed', today - interval '24 hours', today) <> 'busy';
		perform pg_sleep(0.1);
	end loop;
end $$;
