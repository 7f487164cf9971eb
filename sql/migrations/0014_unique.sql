-- oldest-program: 0.1.0
--
-- Unique messages: outbox.publish with unique_key writes a message only if no other message of that topic has the key,
-- and otherwise returns the event id of the message that has it. outbox.unique_ledger says which message has which key.
-- Its rows are only inserted, and leave with their partition, by the functions of 0004_partitions.sql.
--
-- How long a message has its key is the caller's choice:
--
--   within                        from the time at which the message was written, for so long
--   while_pending => 'published'  until every publisher has published the message. A parked or scheduled message is not
--                                 published. `within` plays no part.
--   while_pending => 'done'       as 'published', and from then on until outbox.unique_done reports the message, but not
--                                 longer than `within`: a consumer that died must not keep the key for ever
--
-- No constraint can make a key unique in partitions by time, since it would have to hold the time, and no constraint
-- knows a window. Locks do. A writer first looks for the key without a lock. Rows are only inserted, so a key that it
-- finds is taken, and it is done: such a writer waits for nobody. Otherwise it takes the advisory lock of topic and key,
-- which waits for the end of any transaction that has taken the key, as a unique index would, and looks again. The
-- second look is a statement of its own in a volatile function, so its snapshot is newer than the lock, and the server
-- makes a commit visible before it releases the locks of the transaction. That holds only in READ COMMITTED; a
-- transaction of any other level is refused. If the second look finds nothing, the message is written, and its row in the
-- ledger, under the lock. The row's time is the message's created_at, and the time with which a window is compared is
-- read before the new message is written: so two messages of a key are never closer than the window by their own times.
--
-- The locks are those of the transaction. ROLLBACK TO a savepoint releases the lock with the row, and a prepared
-- transaction keeps both. Each lock is an entry in the server's table of locks, which has room for
-- max_locks_per_transaction * (max_connections + max_prepared_transactions) of them, for everybody: hence 1,000 new
-- keys a transaction at most. Transactions that take the same keys in different orders can deadlock, as at a unique
-- index (40P01). outbox.publish_batch takes its locks in the order of their numbers.
--
-- key: the first 64 bits of a SHA-256, the same on any server that a dump is carried to. Rows are found by it, and topic
-- and key are compared after that. The number of a lock is a SHA-256 of the same and a secret of this schema: every
-- login can hold advisory locks, and must not know the number of a key.
--
-- Helpers are in PL/pgSQL, which keeps their plans for the session: a helper in SQL would be planned at each call.

create table outbox.unique_ledger (
	key        bigint      not null,
	at         timestamptz not null,
	event_id   uuid        not null,
	message_id bigint,
	topic      text collate "C" not null,
	unique_key text collate "C",
	waits_for  text collate "C",
	kept_until timestamptz not null,
	txid       xid8        not null default pg_current_xact_id()
) partition by range (at);

create index on outbox.unique_ledger (key, at);
create index on outbox.unique_ledger (txid);
-- Only for keys of while_pending and for reports: other writers do not pay for it. One index, because the first search of a
-- session locks each index of each partition.
create index on outbox.unique_ledger (event_id) where waits_for is not null or message_id is null;

comment on table outbox.unique_ledger is 'Which message has which unique key. One row for each message that was written '
	'with a unique key, and one for each that was reported as done.';
comment on column outbox.unique_ledger.key is 'First 64 bits of a SHA-256 of topic and unique key.';
comment on column outbox.unique_ledger.at is 'created_at of the message; in a row that reports a message as done, the '
	'time of the report. The table is partitioned by it.';
comment on column outbox.unique_ledger.event_id is 'Event id of the message.';
comment on column outbox.unique_ledger.message_id is 'Id of the message. null: the row reports the message as done.';
comment on column outbox.unique_ledger.topic is 'Topic of the message.';
comment on column outbox.unique_ledger.unique_key is 'Unique key of the message. null: the row reports the message as '
	'done.';
comment on column outbox.unique_ledger.waits_for is '`while_pending` of the writer: published, done or null.';
comment on column outbox.unique_ledger.kept_until is 'End of the window. The row''s partition is kept at least until '
	'then.';
comment on column outbox.unique_ledger.txid is 'Id of the top-level transaction that wrote the row, never of a '
	'savepoint.';

-- Takes the rows that fit into no other partition, so that an insert never fails. Normally empty.
create table outbox.unique_ledger_default
	(like outbox.unique_ledger including all excluding comments)
	with (autovacuum_freeze_min_age = 0);
-- the range of no other partition has such a time
alter table outbox.unique_ledger_default add constraint at_is_finite check (isfinite(at));
alter table outbox.unique_ledger attach partition outbox.unique_ledger_default default;

-- Topics of keys that still need this partition; null: there is none. A row is needed until its window has passed, and
-- the row of a message with while_pending until the message is published as well. Such a message has the txid of its
-- row, so that a shard that has not published it is recognised as in outbox.message_holder. The row does not have the
-- shard of the message: it stays until all shards have published. The newest rows are checked first, because they usually
-- decide.
create function outbox.unique_ledger_holder(leaf text) returns text language plpgsql
	set enable_seqscan = on set jit = off as $$
declare
	waiting text := format('outbox.%I l where l.waits_for is not null and l.message_id is not null', leaf);
	reader record;
	holder text;
begin
	execute format('select n.topic from (select l.topic, l.kept_until from outbox.%I l '
		'order by l.txid desc limit 1) n where n.kept_until > clock_timestamp()', leaf) into holder;
	if holder is null then
		execute format('select l.topic from outbox.%I l where l.kept_until > $1 limit 1', leaf)
			into holder using clock_timestamp();
	end if;
	if holder is null then
		execute format('select l.topic from %1$s and (l.event_id, l.at) in (select p.event_id, p.created_at from outbox.parked p '
			'union all select s.event_id, s.created_at from outbox.scheduled s) limit 1', waiting) into holder;
	end if;
	for reader in select p.ticks[1] as acknowledged, p.written_elsewhere from outbox.progress p where holder is null loop
		execute format('select l.topic from %s and ($1 or l.txid >= $2 or l.txid = any ($3)) limit 1', waiting)
			into holder using reader.written_elsewhere, coalesce(pg_snapshot_xmax(reader.acknowledged), '0'),
				array(select pg_snapshot_xip(reader.acknowledged));
		exit when holder is not null;
	end loop;
	if holder is null and not exists (select from outbox.publisher) then
		execute format('select l.topic from %s limit 1', waiting) into holder;
	end if;
	return holder;
end $$;

create function outbox.unique_name(topic text, unique_key text) returns bytea
	immutable parallel safe language plpgsql as $$
begin
	return convert_to(topic, 'UTF8') || decode('00', 'hex') || convert_to(unique_key, 'UTF8');
end $$;

create function outbox.unique_number(name bytea) returns bigint immutable parallel safe language plpgsql as $$
begin
	return ('x' || encode(substr(sha256(name), 1, 8), 'hex'))::bit(64)::bigint;
end $$;

-- The window, in which a day has 24 hours in each zone; null: outbox.unique_refuse says why. `within` null: the default.
-- Compared in seconds, in which a year has 365.25 days: an interval compares with years of 360, and may be more than 0 and
-- have less than 0 seconds. One expression, because a session prepares each expression anew in each transaction.
create function outbox.unique_window(unique_key text, within interval, while_pending text) returns interval
	stable language plpgsql as $$
begin
	return case when current_setting('transaction_isolation') = 'read committed'
		and octet_length(convert_to(unique_key, 'UTF8')) between 1 and 512
		and coalesce(extract(epoch from within) between 0.000001 and 3650 * 86400, true)
		and coalesce(while_pending in ('published', 'done'), true)
		then make_interval(secs => extract(epoch from coalesce(within, interval '24 hours'))) end;
end $$;

-- Raises an error for arguments for which no search could be right.
create function outbox.unique_refuse(argument text, unique_key text, within interval, while_pending text)
	returns void language plpgsql as $$
declare
	bytes int := octet_length(convert_to(unique_key, 'UTF8'));
begin
	if current_setting('transaction_isolation') <> 'read committed' then
		raise exception 'unique_key needs a READ COMMITTED transaction, and this one is %',
			upper(current_setting('transaction_isolation')) using errcode = 'invalid_transaction_state',
			hint = 'begin it with `begin isolation level read committed`: any other level does not see a message that was '
				'committed while it waited for the key';
	elsif bytes not between 1 and 512 then
		raise exception '% has % bytes', argument, bytes using errcode = 'invalid_parameter_value',
			hint = 'write 1 to 512 bytes: of a longer key its SHA-256, and null if the message is not unique';
	elsif extract(epoch from within) not between 0.000001 and 3650 * 86400 then
		raise exception 'within is %', within using errcode = 'invalid_parameter_value',
			hint = 'write more than 0 and at most 3650 days, for example interval ''24 hours''';
	elsif while_pending not in ('published', 'done') then
		raise exception 'while_pending is "%"', while_pending using errcode = 'invalid_parameter_value',
			hint = 'write ''published'', ''done'' or null';
	end if;
end $$;

-- Counts locks of this transaction, and returns their number.
create function outbox.unique_count(locks int) returns int language plpgsql as $$
begin
	return set_config('outbox.unique_locks', (coalesce(nullif(current_setting('outbox.unique_locks', true), ''), '0')::int
		+ locks)::text, true);
end $$;

-- Refuses more locks than the server has room for.
create function outbox.unique_limit(locks int) returns void language plpgsql as $$
begin
	if locks > 1000 then
		raise exception 'at most 1000 new unique keys are taken in a transaction, and here are %', locks
			using errcode = 'program_limit_exceeded',
				hint = 'each takes a lock of the server: publish fewer in more transactions';
	end if;
end $$;

-- Is the message still to be published, by any publisher? One statement, with one snapshot: a message is in one of these
-- places or another.
create function outbox.unique_waits(of_id bigint, of_at timestamptz, of_event_id uuid) returns boolean volatile
	language plpgsql as $$
begin
	return exists (select from outbox.parked q where q.id = of_id and q.event_id = of_event_id)
		or exists (select from outbox.parked q
			where q.was_id = of_id and q.was_id is not null and q.event_id = of_event_id)
		or exists (select from outbox.scheduled q where q.id = of_id and q.event_id = of_event_id)
		or exists (select from outbox.scheduled q
			where q.was_id = of_id and q.was_id is not null and q.event_id = of_event_id)
		or exists (select from outbox.message_state s
			where s.id = of_id and s.created_at = of_at and s.state = 'pending')
		or not exists (select from outbox.publisher)
			and exists (select from outbox.message m where m.id = of_id and m.created_at = of_at);
end $$;

-- The event id of the message that has the key; null: none. Without while_pending the search is a range of times, so
-- that partitions before it are not opened. Nothing bounds it above: after the clock was set back rows lie in the future.
-- A report is looked for by its event id alone, and its key compared here: by the key, the search would read all rows of it.
--
-- In a savepoint that is rolled back: the search locks all partitions of the ledger, and those of the messages, and upkeep
-- could change none of them until the transaction of the writer ends. An answer in a variable stays.
create function outbox.unique_find(of_key bigint, of_topic text, of_unique_key text, since timestamptz,
	while_pending text) returns uuid volatile language plpgsql as $$
declare
	first uuid;
	first_at timestamptz;
	first_id bigint;
begin
	if while_pending is null then
		select l.event_id into first from outbox.unique_ledger l
			where l.key = of_key and l.at > since and l.unique_key = of_unique_key and l.topic = of_topic
			order by l.at limit 1;
	else
		select l.event_id, l.at, l.message_id into first, first_at, first_id from outbox.unique_ledger l
			where l.key = of_key and l.unique_key = of_unique_key and l.topic = of_topic order by l.at desc limit 1;
		if first is not null and not outbox.unique_waits(first_id, first_at, first)
			and (while_pending = 'published' or first_at <= since or of_key = any (array(
				select d.key from outbox.unique_ledger d where d.event_id = first and d.message_id is null)))
		then
			first := null;
		end if;
	end if;
	raise exception using errcode = 'OR003';
exception when sqlstate 'OR003' then
	return first;
end $$;

-- first: the event id of the message that has the key; null: none has it, and this transaction has its lock until it
-- ends. has_lock: the transaction got the lock by outbox.unique_lock, which has counted it.
--
-- The first search has the lock unless another transaction has it. If the key is found, the lock and its count go with
-- their savepoint: the answer needs none. The plan of the search is kept, since planning it anew at each call would cost
-- several times as much. There are few expressions here, because a session prepares each one anew in each transaction.
--
-- of_moment: the window ends there; null: now. An earlier moment makes the window longer, never shorter.
create function outbox.unique_take(of_topic text, of_unique_key text, within interval, while_pending text,
	has_lock boolean, of_moment timestamptz, out first uuid, out of_key bigint, out kept interval) volatile
	language plpgsql security definer set search_path = pg_catalog, pg_temp
	set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
	set row_security = off as $$
declare
	number bigint;
	locks int;
	locked boolean;
begin
	begin
		select w.kept, w.key, w.number, w.locks, pg_try_advisory_xact_lock(w.number)
			into kept, of_key, number, locks, locked
			from (select outbox.unique_window(of_unique_key, within, while_pending) as kept,
				outbox.unique_number(n.name) as key, outbox.unique_number(s.value || n.name) as number,
				outbox.unique_count(case when has_lock then 0 else 1 end) as locks
				from outbox.processed_secret s
				cross join (select outbox.unique_name(of_topic, of_unique_key) as name offset 0) n offset 0) w;
		first := outbox.unique_find(of_key, of_topic, of_unique_key, coalesce(of_moment, clock_timestamp()) - kept,
			while_pending);
		if first is not null or kept is null then
			raise exception using errcode = 'OR003';
		end if;
	exception when sqlstate 'OR003' then
		if kept is null then
			perform outbox.unique_refuse('unique_key', of_unique_key, within, while_pending);
		end if;
		return;
	end;
	if locks > 1000 or not locked then
		perform outbox.unique_limit(locks);
		perform pg_advisory_xact_lock(number);
		first := outbox.unique_find(of_key, of_topic, of_unique_key, coalesce(of_moment, clock_timestamp()) - kept,
			while_pending);
	end if;
end $$;

-- For each of these keys, in order: the event id of the message that has it, or null. Then this transaction has the lock
-- of the key. The locks are taken in the order of their numbers, so that two such calls wait for each other but do not
-- deadlock. A key that was found before the locks stays found: its message may be published meanwhile, but had the key
-- when this call came.
create function outbox.unique_lock(of_topic text, unique_keys text[], within interval, while_pending text)
	returns uuid[] volatile language plpgsql security definer set search_path = pg_catalog, pg_temp
	set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
	set row_security = off as $$
declare
	item record;
	kept interval;
	firsts uuid[];
	locks bigint[];
begin
	for item in select u.unique_key, u.n from unnest(unique_keys) with ordinality u (unique_key, n) loop
		continue when item.unique_key is null;
		kept := outbox.unique_window(item.unique_key, within, while_pending);
		if kept is null then
			perform outbox.unique_refuse(format('unique_keys[%s]', item.n), item.unique_key, within, while_pending);
		end if;
		firsts[item.n] := outbox.unique_find(outbox.unique_number(outbox.unique_name(of_topic, item.unique_key)), of_topic,
			item.unique_key, clock_timestamp() - kept, while_pending);
	end loop;

	locks := array(
		select distinct outbox.unique_number(s.value || outbox.unique_name(of_topic, u.unique_key))
		from unnest(unique_keys) with ordinality u (unique_key, n) cross join outbox.processed_secret s
		where u.unique_key is not null and firsts[u.n] is null order by 1);
	perform outbox.unique_limit(outbox.unique_count(cardinality(locks)));
	perform pg_advisory_xact_lock(l.number) from unnest(locks) l (number);
	return firsts;
end $$;

-- Notes that a message has a key, and returns its event id. The caller has the lock of the key.
create function outbox.unique_insert(of_key bigint, of_topic text, of_unique_key text, of_event_id uuid, of_id bigint,
	of_at timestamptz, kept interval, while_pending text) returns uuid volatile language plpgsql as $$
begin
	insert into outbox.unique_ledger (key, at, event_id, message_id, topic, unique_key, waits_for, kept_until)
	values (of_key, of_at, of_event_id, of_id, of_topic, of_unique_key, while_pending, of_at + kept);
	return of_event_id;
end $$;

-- Has this transaction written the message? In a savepoint that is rolled back, as in outbox.unique_find.
create function outbox.unique_is_written(of_topic text, of_event_id uuid, of_id bigint, of_at timestamptz)
	returns boolean volatile language plpgsql as $$
declare
	written boolean;
begin
	written := exists (select from outbox.message m where m.id = of_id and m.created_at = of_at
		and m.event_id = of_event_id and m.topic = of_topic and m.txid = pg_current_xact_id());
	raise exception using errcode = 'OR003';
exception when sqlstate 'OR003' then
	return written;
end $$;

-- outbox.unique_insert for writers. If policies say which topics a writer may write, its key must be that of a message
-- that it has written: otherwise it could take the keys of others, whose messages would not be written.
create function outbox.unique_note(of_key bigint, of_topic text, of_unique_key text, of_event_id uuid, of_id bigint,
	of_at timestamptz, kept interval, while_pending text) returns uuid volatile language plpgsql security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
	if (select c.relrowsecurity from pg_class c where c.oid = 'outbox.message'::regclass)
		and not outbox.unique_is_written(of_topic, of_event_id, of_id, of_at)
	then
		raise exception 'this transaction has not written the message % of topic %', of_event_id, of_topic
			using errcode = 'insufficient_privilege', hint = 'take unique keys with outbox.publish';
	end if;
	return outbox.unique_insert(of_key, of_topic, of_unique_key, of_event_id, of_id, of_at, kept, while_pending);
end $$;

-- outbox.publish with a unique key. As the caller, so that the message is written with the writer's own rights.
create function outbox.publish_unique(topic text, key text, key_bytes bytea, payload text, payload_bytes bytea,
	headers json, event_id uuid, deliver_at timestamptz, unique_key text, within interval, while_pending text,
	has_lock boolean) returns uuid volatile language plpgsql as $$
declare
	taken pg_catalog.record;
	written pg_catalog.record;
begin
	taken := outbox.unique_take(publish_unique.topic, publish_unique.unique_key, publish_unique.within,
		publish_unique.while_pending, has_lock, null);
	if taken.first is not null then
		return taken.first;
	end if;
	insert into outbox.message as m (event_id, topic, key, payload, headers, deliver_at, key_bytes, payload_bytes)
	values (publish_unique.event_id, publish_unique.topic, publish_unique.key, publish_unique.payload,
		publish_unique.headers, publish_unique.deliver_at, publish_unique.key_bytes, publish_unique.payload_bytes)
	returning m.id, m.created_at into written;
	return outbox.unique_note(taken.of_key, publish_unique.topic, publish_unique.unique_key, publish_unique.event_id,
		written.id, written.created_at, taken.kept, publish_unique.while_pending);
end $$;

create function outbox.publish_batch(topic text, keys text[] default null, payloads text[] default null,
	unique_keys text[] default null, within interval default '24 hours', while_pending text default null,
	headers json[] default null, event_ids uuid[] default null, deliver_at timestamptz default null,
	keys_bytes bytea[] default null, payloads_bytes bytea[] default null) returns uuid[] language plpgsql as $$
declare
	size pg_catalog.int4 := greatest(pg_catalog.cardinality(keys), pg_catalog.cardinality(payloads),
		pg_catalog.cardinality(unique_keys), pg_catalog.cardinality(headers), pg_catalog.cardinality(event_ids),
		pg_catalog.cardinality(keys_bytes), pg_catalog.cardinality(payloads_bytes));
	firsts pg_catalog.uuid[];
	ids pg_catalog.uuid[] := '{}';
	item pg_catalog.record;
	id pg_catalog.uuid;
begin
	if size operator(pg_catalog.<>) any (array[pg_catalog.cardinality(keys), pg_catalog.cardinality(payloads),
		pg_catalog.cardinality(unique_keys), pg_catalog.cardinality(headers), pg_catalog.cardinality(event_ids),
		pg_catalog.cardinality(keys_bytes), pg_catalog.cardinality(payloads_bytes)])
	then
		raise exception 'the arrays of outbox.publish_batch have different lengths, of which % is the largest', size
			using errcode = 'array_subscript_error', hint = 'each array has one element for each message';
	end if;
	if unique_keys is not null then
		firsts := outbox.unique_lock(publish_batch.topic, unique_keys, publish_batch.within, publish_batch.while_pending);
	end if;
	for item in select * from rows from (pg_catalog.unnest(keys), pg_catalog.unnest(payloads),
		pg_catalog.unnest(unique_keys), pg_catalog.unnest(headers), pg_catalog.unnest(event_ids),
		pg_catalog.unnest(keys_bytes), pg_catalog.unnest(payloads_bytes), pg_catalog.unnest(firsts))
		as r (key, payload, unique_key, headers, event_id, key_bytes, payload_bytes, first)
	loop
		id := coalesce(item.first, item.event_id, outbox.new_event_id());
		if item.unique_key is null then
			insert into outbox.message (event_id, topic, key, payload, headers, deliver_at, key_bytes, payload_bytes)
			values (id, publish_batch.topic, item.key, item.payload, item.headers, publish_batch.deliver_at, item.key_bytes,
				item.payload_bytes);
		elsif item.first is null then
			id := outbox.publish_unique(publish_batch.topic, item.key, item.key_bytes, item.payload, item.payload_bytes,
				item.headers, id, publish_batch.deliver_at, item.unique_key, publish_batch.within,
				publish_batch.while_pending, true);
		end if;
		ids := pg_catalog.array_append(ids, id);
	end loop;
	return ids;
end $$;
comment on function outbox.publish_batch(text, text[], text[], text[], interval, text, json[], uuid[], timestamptz,
	bytea[], bytea[]) is 'Writes messages of one topic in the transaction of the caller, in the order of the arrays, and '
	'returns their event ids. Each array has one element for each message, or is null. For a unique key that another '
	'message has, the event id of that message is returned and nothing is written. The keys are locked in one order, so '
	'that batches do not deadlock with each other.';

create function outbox.unique_done(event_ids uuid[]) returns bigint volatile language plpgsql security definer
	set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
	set row_security = off as $$
declare
	reported bigint;
begin
	if current_setting('transaction_isolation') <> 'read committed' then
		raise exception 'outbox.unique_done needs a READ COMMITTED transaction' using
			errcode = 'invalid_transaction_state',
			hint = 'at any other level a message that was committed after the first statement is not found';
	end if;
	insert into outbox.unique_ledger (key, at, event_id, topic, kept_until)
	select l.key, clock_timestamp(), l.event_id, l.topic, l.kept_until
	from (select distinct a as id from unnest(event_ids) a) e
	cross join lateral (select u.key, u.event_id, u.topic, u.kept_until from outbox.unique_ledger u
		where u.event_id = e.id and u.waits_for = 'done' and u.message_id is not null
			and u.key <> all (array(
				select d.key from outbox.unique_ledger d where d.event_id = u.event_id and d.message_id is null))) l;
	get diagnostics reported = row_count;
	return reported;
end $$;
comment on function outbox.unique_done(uuid[]) is 'Reports messages as handled: their unique keys, if written with '
	'while_pending => ''done'', may be used again. Returns the number of messages that were not reported before. Ids of '
	'other messages are ignored, so that a consumer may report each message that it has handled.';

-- The functions that run as the owner are for writers and consumers alone (roles.sql).
revoke execute on function
	outbox.unique_take(text, text, interval, text, boolean, timestamptz),
	outbox.unique_lock(text, text[], interval, text),
	outbox.unique_note(bigint, text, text, uuid, bigint, timestamptz, interval, text),
	outbox.unique_done(uuid[]) from public;

select outbox.partitions_begin('unique_ledger');
