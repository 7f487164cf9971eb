-- oldest-program: 0.1.0
--
-- The look-back relay: the offsets of its readers, the decisions, and the questions to the business.
--
-- An id is a pair (biz_type, biz_id). All its data is in the insert-only table outbox.lookback (0010):
-- its prepare, its decision, or a tombstone, a decision that came before its prepare. The decision's row
-- carries the prepared_at of the prepare that it decides, so that the primary key accepts only one
-- decision, from the reader, the checker or an operator. The winner writes outbox.message in the same
-- transaction. A loser with a different decision is recorded in outbox.lookback_conflict.
--
-- All records of an id come by one partition of the look-back topic, and that has one reader at a time:
-- outbox.lookback_log is its fence. Each batch inserts the row n of its partitions, made from the row
-- n - 1 that the reader went on from, in the transaction of its effects. A reader whose insert fails has
-- lost the partition, and the records that it read have no effect. So the results of its earlier queries
-- (outbox.lookback_known) are valid as soon as its row is inserted.
--
-- The clock is the database's alone. A prepare is due at check_at; promoted_to of a partition's newest
-- row says up to when due prepares were made overdue: outbox.lookback_overdue, the one table whose rows
-- change. The reader promotes within its own transactions, up to a time by which it is known to have
-- read everything that had been written by then.
--
-- The functions for the reader and the checker have plans that do not depend on the arguments: otherwise
-- the server would plan each batch of a few ids again, which takes longer than its work.

create table outbox.lookback_log (
	section     text collate "C" not null,
	topic       text collate "C" not null,
	partition   int         not null,
	n           bigint      not null,
	next_offset bigint      not null, -- everything before it has had its effect
	promoted_to timestamptz not null,
	reader      text        not null,
	written_at  timestamptz not null default clock_timestamp(),
	primary key (section, topic, partition, n)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

comment on table outbox.lookback_log is 'Progress and fence of each partition of the look-back topic. The newest row '
	'of a partition holds its current state.';
comment on column outbox.lookback_log.section is '[lookback] section.';
comment on column outbox.lookback_log.topic is 'Look-back topic.';
comment on column outbox.lookback_log.partition is 'Partition of the topic.';
comment on column outbox.lookback_log.n is 'Number of the row within its partition. Each new row is one higher, and '
	'the primary key rejects a second writer.';
comment on column outbox.lookback_log.next_offset is 'All records before this offset have taken effect.';
comment on column outbox.lookback_log.promoted_to is 'Prepares due up to this time are in outbox.lookback_overdue, '
	'unless they were decided.';
comment on column outbox.lookback_log.reader is 'Process that read the records.';
comment on column outbox.lookback_log.written_at is 'Time at which the row was written.';

create table outbox.lookback_overdue (
	section       text collate "C" not null,
	biz_type      text collate "C" not null,
	biz_id        text collate "C" not null,
	prepared_at   timestamptz not null,
	state         text        not null default 'overdue'
		constraint state_is_overdue_or_parked check (state in ('overdue', 'parked')),
	check_service text,
	check_url     text,
	overdue_at    timestamptz not null default clock_timestamp(),
	expires_at    timestamptz,          -- it is parked at this time
	next_check    timestamptz not null, -- while claimed: when the claim ends
	claim         bigint,
	attempts      int         not null default 0, -- requests that were sent and brought no decision
	pendings      int         not null default 0, -- of them those answered with "pending"
	last_result   text,
	last_error    text,
	last_at       timestamptz,
	primary key (biz_type, biz_id, prepared_at)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, fillfactor = 80);

comment on table outbox.lookback_overdue is 'Undecided prepares that are due: the relay calls the business about '
	'them, or they are parked for an operator.';
comment on column outbox.lookback_overdue.section is '[lookback] section.';
comment on column outbox.lookback_overdue.biz_type is 'Business type.';
comment on column outbox.lookback_overdue.biz_id is 'Id of the message within its business type.';
comment on column outbox.lookback_overdue.prepared_at is 'Identifies the prepare in outbox.lookback.';
comment on column outbox.lookback_overdue.state is 'overdue: the relay calls the business. parked: an operator '
	'decides.';
comment on column outbox.lookback_overdue.check_service is '[check] section that the prepare names.';
comment on column outbox.lookback_overdue.check_url is 'URL that the prepare names.';
comment on column outbox.lookback_overdue.overdue_at is 'Time at which the prepare became overdue.';
comment on column outbox.lookback_overdue.expires_at is 'Time at which the prepare is parked.';
comment on column outbox.lookback_overdue.next_check is 'Time of the next call. While claimed: the end of the claim.';
comment on column outbox.lookback_overdue.claim is 'Claim of the relay that is calling the business. null: there is '
	'none.';
comment on column outbox.lookback_overdue.attempts is 'Number of requests without a decision.';
comment on column outbox.lookback_overdue.pendings is 'How many of them were answered with "pending".';
comment on column outbox.lookback_overdue.last_result is 'Result of the last request.';
comment on column outbox.lookback_overdue.last_error is 'Error of the last request.';
comment on column outbox.lookback_overdue.last_at is 'Time of the last request.';

create index lookback_due on outbox.lookback_overdue (section, biz_type, next_check)
	where state = 'overdue';
-- few rows are parked: without these, counting and listing them would read all overdue ones
create index lookback_parked on outbox.lookback_overdue (section, biz_type, biz_id, prepared_at)
	where state = 'parked';
create index lookback_parked_page on outbox.lookback_overdue (biz_type, biz_id, prepared_at)
	where state = 'parked';

create table outbox.lookback_conflict (
	id               bigint      generated always as identity (cache 1) primary key,
	at               timestamptz not null default clock_timestamp(),
	section          text collate "C" not null,
	biz_type         text collate "C" not null,
	biz_id           text collate "C" not null,
	prepared_at      timestamptz,
	kept             text        not null, -- 'prepare', 'commit' or 'rollback'
	refused          text        not null, -- the same, for the later and different record
	source           text        not null, -- source of the later record
	who              text,
	source_partition int,
	source_offset    bigint
);

comment on table outbox.lookback_conflict is 'Records that contradict an earlier prepare or decision. The earlier '
	'one stays valid.';
comment on column outbox.lookback_conflict.id is 'Number of the conflict.';
comment on column outbox.lookback_conflict.at is 'Time at which it was found.';
comment on column outbox.lookback_conflict.section is '[lookback] section.';
comment on column outbox.lookback_conflict.biz_type is 'Business type.';
comment on column outbox.lookback_conflict.biz_id is 'Id of the message within its business type.';
comment on column outbox.lookback_conflict.prepared_at is 'Identifies the prepare in outbox.lookback.';
comment on column outbox.lookback_conflict.kept is 'The record that stays valid: prepare, commit or rollback.';
comment on column outbox.lookback_conflict.refused is 'The later record that was rejected: prepare, commit or '
	'rollback.';
comment on column outbox.lookback_conflict.source is 'Source of the later record.';
comment on column outbox.lookback_conflict.who is 'Database user, if the later record is an operator''s decision.';
comment on column outbox.lookback_conflict.source_partition is 'Partition of the look-back topic that the later '
	'record came from.';
comment on column outbox.lookback_conflict.source_offset is 'Offset of that record.';
create index on outbox.lookback_conflict (biz_type, biz_id);

-- The newest row of each partition, from which the reader continues.
create function outbox.lookback_progress(of_section text, of_topic text)
returns table (partition int, n bigint, next_offset bigint) language sql stable
set search_path = pg_catalog, pg_temp as $$
	select distinct on (l.partition) l.partition, l.n, l.next_offset
	from outbox.lookback_log l where l.section = of_section and l.topic = of_topic
	order by l.partition, l.n desc
$$;

-- The rows about each of these ids; some have none. Place counts from 1. Volatile, so that it sees a row
-- that is moved out of the default partition meanwhile.
create function outbox.lookback_known(types text[], ids text[])
returns table (place int, kind text, prepared_at timestamptz, digest bytea, decision text)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp as $$
begin
	return query select i.place::int, l.kind::text, l.prepared_at, l.digest, l.decision::text
	from unnest(types, ids) with ordinality i (biz_type, biz_id, place)
	cross join lateral (
		select l.kind, l.prepared_at, l.digest, l.decision from outbox.lookback l
		where l.biz_type = i.biz_type and l.biz_id = i.biz_id
		order by l.prepared_at limit 100) l
	order by i.place, l.prepared_at;
end
$$;

-- Takes the unique keys of the prepares that these decisions commit, each as outbox.publish does. By place, from 1 on:
--
--   firsts   the message that has the key: the prepare is a duplicate
--   keys     the key was free, and this transaction has it; windows: for how long
--   later    another prepare of this call took the key: whether its message is written is not known yet
--   held     an open transaction has the key, or (is_full) all of these are more than one transaction takes
--
-- All decisions of a statement have one moment for their windows. Otherwise each of a thousand with a window of 1 ms could
-- find the key free again, and outbox.lookback_decide would call itself for each.
--
-- All null if no prepare has a unique key. The locks are taken in the order of their numbers, as in outbox.publish_batch,
-- and before any row is locked. Others wait for this transaction meanwhile, so that it waits only once, and shortly: an
-- application's transaction may stay open for hours.
create function outbox.lookback_take(types text[], ids text[], prepared_ats timestamptz[], decisions text[],
	offsets bigint[], out firsts uuid[], out keys bigint[], out windows interval[], out later int[], out held int[],
	out error text, out is_full boolean)
language plpgsql volatile set lock_timeout = '300ms'
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp as $$
declare
	most constant int := 1000; -- as outbox.unique_limit
	wanted record;
	taken record;
	mine bigint; -- the lock of the newest key that was free
begin
	if not exists (select from outbox.lookback l where l.unique_key is not null limit 1) then
		return;
	end if;
	for wanted in
		select c.place, c.number, c.topic, c.unique_key, c.within, c.while_pending,
			row_number() over (order by c.place) as turn
		from (
			select distinct on (w.biz_type, w.biz_id, w.prepared_at) w.place, w.decision, p.*
			from unnest(types, ids, prepared_ats, decisions, offsets) with ordinality
				w (biz_type, biz_id, prepared_at, decision, source_offset, place)
			cross join lateral (
				select p.topic, p.unique_key, p.within, p.while_pending,
					outbox.unique_number(s.value || outbox.unique_name(p.topic, p.unique_key)) as number
				from outbox.lookback p cross join outbox.processed_secret s
				where p.biz_type = w.biz_type and p.biz_id = w.biz_id
					and p.prepared_at = w.prepared_at and p.unique_key is not null
				limit 1) p
			left join lateral (
				select true as is_there from outbox.lookback d where d.biz_type = w.biz_type
					and d.biz_id = w.biz_id and d.prepared_at = w.prepared_at and d.kind = 'decision'
				limit 1) d on true
			where d.is_there is null
			order by w.biz_type, w.biz_id, w.prepared_at, w.source_offset
		) c where c.decision = 'commit' order by c.number, c.place
	loop
		firsts := coalesce(firsts, array_fill(null::uuid, array[cardinality(types)]));
		keys := coalesce(keys, array_fill(null::bigint, array[cardinality(types)]));
		windows := coalesce(windows, array_fill(null::interval, array[cardinality(types)]));
		if wanted.number = mine then
			later := later || wanted.place::int;
			continue;
		elsif wanted.turn > most then
			held := held || wanted.place::int;
			error := coalesce(error, format('there are more than %s unique keys, which is the maximum of a transaction', most));
			is_full := coalesce(is_full, true);
			continue;
		end if;
		begin
			select t.* into taken from outbox.unique_take(wanted.topic, wanted.unique_key, wanted.within,
				wanted.while_pending, false, statement_timestamp()) t;
			firsts[wanted.place] := taken.first;
			if taken.first is null then
				mine := wanted.number;
				keys[wanted.place] := taken.of_key;
				windows[wanted.place] := taken.kept;
			end if;
		exception when lock_not_available then
			held := held || wanted.place::int;
			is_full := false;
			error := format('an open transaction has the unique key "%s" of topic %s%s',
				left(wanted.unique_key, 100), wanted.topic, (
				select format(' (process %s)', min(l.pid)) from pg_locks l where l.locktype = 'advisory'
					and l.granted and l.objsubid = 1
					and l.classid = (wanted.number >> 32 & 4294967295)::oid
					and l.objid = (wanted.number & 4294967295)::oid
				having min(l.pid) is not null));
			perform set_config('lock_timeout', '1ms', true);
		end;
	end loop;
end
$$;

-- Writes decisions: the first decision of each prepare wins, and a commit that wins writes its message,
-- in the order of the records that brought them, dead letters included. If the prepare has a unique key that
-- another message has, the commit writes no message, and the decision has the event id of that one (duplicates
-- counts them). A different decision of a loser is recorded as a conflict. Returns how many of the given
-- decisions won. Those in held were not made: see outbox.lookback_take, whose error says why.
--
-- Unique keys are locked first, then rows of outbox.lookback by their key, in order, before those of
-- outbox.lookback_overdue: all deciders lock in this order, so that they cannot deadlock. It runs as the
-- schema's owner: the relay's role writes no messages but these.
--
-- A prepare is looked for with kind between 'prepare' and 'prepare': equality would let the planner scan
-- the whole index of due prepares in a partition that was empty when it planned.
create function outbox.lookback_decide(of_section text, of_source text, by_whom text, why text,
	types text[], ids text[], prepared_ats timestamptz[], decisions text[], partitions int[],
	offsets bigint[], dead_letter_topics text[], dead_letter_keys bytea[], dead_letter_payloads bytea[],
	dead_letter_headers text[], dead_letter_partitions int[], dead_letter_offsets bigint[], out won int,
	out duplicates int, out held int[], out error text, out is_full boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set row_security = off as $$
declare
	overdue boolean;
	gone record;
	unique_keys record;
	skipped boolean[]; -- by place: not decided by the statement below
	ledger_rows bigint;
	second record;
begin
	select t.* into unique_keys from outbox.lookback_take(types, ids, prepared_ats, decisions, offsets) t;
	-- Others return the id of this message as soon as the commit is visible: a crash must not undo it after that.
	if (select bool_or(k.taken is not null) from unnest(unique_keys.keys) k (taken)) then
		perform set_config('synchronous_commit', 'on', true);
	end if;
	held := unique_keys.held;
	error := unique_keys.error;
	is_full := unique_keys.is_full;
	if coalesce(held, unique_keys.later) is not null then
		skipped := array(select g = any (coalesce(held, '{}') || coalesce(unique_keys.later, '{}'))
			from generate_series(1, cardinality(types)) g order by g);
	end if;
	perform set_config('outbox.payload_was_checked', 'on', true); -- for outbox.message_rules
	-- Read once, in the order of the locks; only the first of several decisions of a prepare.
	with prepared as materialized (
		select distinct on (w.biz_type, w.biz_id, w.prepared_at) w.*, p.event_id, p.topic, p.key,
			p.payload, p.headers, p.unique_key, p.while_pending, (
				select true from outbox.lookback_overdue o where o.biz_type = w.biz_type
					and o.biz_id = w.biz_id and o.prepared_at = w.prepared_at
				limit 1) as is_overdue
		from unnest(types, ids, prepared_ats, decisions, partitions, offsets, unique_keys.firsts,
				unique_keys.keys, unique_keys.windows, skipped)
			w (biz_type, biz_id, prepared_at, decision, source_partition, source_offset, first, of_key, kept,
				skipped)
		cross join lateral ( -- a prepare whose partition was dropped was decided before
			select p.event_id, p.topic, p.key, p.payload, p.headers, p.unique_key, p.while_pending
			from outbox.lookback p
			where p.biz_type = w.biz_type and p.biz_id = w.biz_id
				and p.prepared_at = w.prepared_at
				and p.kind >= 'prepare' and p.kind <= 'prepare'
			limit 1) p
		where w.skipped is not true
		order by w.biz_type, w.biz_id, w.prepared_at, w.source_offset
	), decided as (
		insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section, decision, source,
			decided_at, decided_by, reason, source_partition, source_offset, event_id, duplicate)
		select p.biz_type, p.biz_id, p.prepared_at, 'decision', of_section, p.decision, of_source,
			clock_timestamp(), by_whom, why, p.source_partition, p.source_offset,
			case when p.decision = 'commit' then coalesce(p.first, p.event_id) end,
			case when p.first is not null then true end
		from prepared p
		on conflict do nothing
		returning biz_type, biz_id, prepared_at, decision, duplicate
	), written as (
		insert into outbox.message (event_id, topic, key_bytes, payload_bytes, headers)
		select m.event_id, m.topic, m.key, m.payload, m.headers from (
			select p.event_id, p.topic, p.key, p.payload, p.headers, p.source_partition, p.source_offset
			from decided d join prepared p using (biz_type, biz_id, prepared_at)
			where d.decision = 'commit' and d.duplicate is null
			union all
			-- a dead letter was not checked: the domain knows the limit
			select outbox.new_event_id(), l.topic, l.key, l.payload::outbox.message_payload,
				(jsonb_build_array(jsonb_build_array('outbox-lookback', of_section)) || l.headers::jsonb)::json,
				l.source_partition, l.source_offset
			from unnest(dead_letter_topics, dead_letter_keys, dead_letter_payloads, dead_letter_headers,
				dead_letter_partitions, dead_letter_offsets) l (
				topic, key, payload, headers, source_partition, source_offset)
		) m order by m.source_partition, m.source_offset
		returning event_id, id, created_at
	), noted as (
		select outbox.unique_insert(p.of_key, p.topic, p.unique_key, m.event_id, m.id, m.created_at, p.kept,
			p.while_pending)
		from written m join prepared p using (event_id) where p.of_key is not null
	)
	select (select count(*) from decided), (select count(*) from decided d where d.duplicate),
		bool_or(p.is_overdue), (select count(*) from noted)
		into won, duplicates, overdue, ledger_rows from prepared p;
	perform set_config('outbox.payload_was_checked', 'off', true);
	-- Usually all decisions win, before their prepares are due: then there is nothing to look up.
	if won < cardinality(types) then
		overdue := true; -- perhaps the prepare of one was dropped
		with wanted as (
			select w.*, l.decision::text as kept, l.txid = pg_current_xact_id()
				and l.source_offset is not distinct from w.source_offset as won
			from unnest(types, ids, prepared_ats, decisions, partitions, offsets, skipped)
				w (biz_type, biz_id, prepared_at, decision, source_partition, source_offset, skipped)
			cross join lateral (
				select l.decision, l.txid, l.source_offset from outbox.lookback l
				where l.biz_type = w.biz_type and l.biz_id = w.biz_id
					and l.prepared_at = w.prepared_at and l.kind = 'decision'
				limit 1) l
			where w.skipped is not true
		), noted as (
			insert into outbox.lookback_conflict (section, biz_type, biz_id, prepared_at, kept, refused,
				source, who, source_partition, source_offset)
			select of_section, w.biz_type, w.biz_id, w.prepared_at, w.kept, w.decision, of_source, by_whom,
				w.source_partition, w.source_offset
			from wanted w where w.kept <> w.decision
		)
		select count(*) filter (where w.won) into won from wanted w;
	end if;
	if unique_keys.later is not null then
		select d.won, d.duplicates, d.held, d.error into second from (
			select array_agg(types[l.place] order by l.n) as types, array_agg(ids[l.place] order by l.n) as ids,
				array_agg(prepared_ats[l.place] order by l.n) as prepared_ats,
				array_agg(decisions[l.place] order by l.n) as decisions,
				array_agg(partitions[l.place] order by l.n) as partitions,
				array_agg(offsets[l.place] order by l.n) as offsets
			from unnest(unique_keys.later) with ordinality l (place, n)) w
		cross join lateral outbox.lookback_decide(of_section, of_source, by_whom, why, w.types, w.ids,
			w.prepared_ats, w.decisions, w.partitions, w.offsets, null, null, null, null, null, null) d;
		won := won + second.won;
		duplicates := duplicates + second.duplicates;
		if second.held is not null then
			held := held || array(select unique_keys.later[h] from unnest(second.held) h);
			error := coalesce(error, second.error);
			is_full := false;
		end if;
	end if;
	if overdue is not true then
		return;
	end if;
	for gone in
		select o.* from unnest(types, ids, prepared_ats, skipped) w (biz_type, biz_id, prepared_at, skipped)
		cross join lateral (
			select o.biz_type, o.biz_id, o.prepared_at from outbox.lookback_overdue o
			where o.biz_type = w.biz_type and o.biz_id = w.biz_id
				and o.prepared_at = w.prepared_at
			limit 1) o
		where w.skipped is not true
		order by 1, 2, 3
	loop
		delete from outbox.lookback_overdue o where o.biz_type = gone.biz_type
			and o.biz_id = gone.biz_id and o.prepared_at = gone.prepared_at;
	end loop;
end
$$;

revoke execute on function outbox.lookback_decide(text, text, text, text, text[], text[], timestamptz[],
	text[], int[], bigint[], text[], bytea[], bytea[], text[], int[], bigint[]) from public;

-- Due prepares of a partition become overdue, up to the horizon or so many; returns up to when all have.
create function outbox.lookback_promote(of_section text, of_partition int, since timestamptz,
	horizon timestamptz, most int, out promoted int, out promoted_to timestamptz) language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
begin
	promoted_to := coalesce((
		select p.check_at from outbox.lookback p
		where p.section = of_section and p.source_partition = of_partition and p.kind = 'prepare'
			and p.check_at > since and p.check_at <= horizon
		order by p.check_at offset most - 1 limit 1), greatest(horizon, since));
	insert into outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, check_service, check_url,
		expires_at, next_check)
	select p.section, p.biz_type, p.biz_id, p.prepared_at, p.check_service, p.check_url, p.expires_at,
		p.check_at
	from outbox.lookback p
	left join lateral (
		select true as decided from outbox.lookback d where d.biz_type = p.biz_type
			and d.biz_id = p.biz_id and d.prepared_at = p.prepared_at and d.kind = 'decision'
		limit 1) d on true
	where p.section = of_section and p.source_partition = of_partition and p.kind = 'prepare'
		and p.check_at > since and p.check_at <= promoted_to and d.decided is null
	on conflict do nothing;
	get diagnostics promoted = row_count;
end
$$;

-- Milliseconds until the first prepare of each partition that was not promoted yet is due; null for a
-- place without one. The clock is read before, so that it serves as a horizon.
create function outbox.lookback_due(of_section text, of_topic text, partitions int[])
returns table (place int, wait_ms bigint, clock timestamptz) language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp as $$
declare
	moment timestamptz := clock_timestamp();
	since timestamptz;
begin
	for at_place in 1 .. cardinality(partitions) loop
		since := coalesce((
			select l.promoted_to from outbox.lookback_log l
			where l.section = of_section and l.topic = of_topic
				and l.partition = partitions[at_place]
			order by l.n desc limit 1), '-infinity');
		return query select at_place, (
			select (extract(epoch from p.check_at - moment) * 1000)::bigint
			from outbox.lookback p
			where p.section = of_section and p.source_partition = partitions[at_place]
				and p.kind = 'prepare' and p.check_at > since
			order by p.check_at limit 1), moment;
	end loop;
end
$$;

-- One batch of a reader. The partitions read: their number, the row n and the offset from which the reader
-- continued, the offset behind its last record, and the time up to which it has certainly read all written
-- records (null: unknown). Then what it writes, each kind in the order of its records: prepares; decisions
-- (prepared_at null: by this batch); dead letters, records that go to a topic as they are; and notes, whose
-- op is 'tombstone' or 'conflict' (kept and decision say what). Each in arrays of its own: most of a batch
-- is of the first two kinds, and a pass over the whole batch for each kind costs more than the work of the
-- rare kinds. Fails with OR004 if the reader no longer owns a partition, and with OR007 if an open transaction has
-- the unique keys of prepares; the detail has the places of the decisions that cannot be made now.
create function outbox.lookback_apply(of_section text, of_topic text, of_reader text, promote_most int,
	partitions int[], ns bigint[], starts bigint[], nexts bigint[], horizons timestamptz[],
	prepare_types text[], prepare_ids text[], prepare_partitions int[], prepare_offsets bigint[],
	prepare_topics text[], prepare_keys bytea[], prepare_payloads bytea[], prepare_headers text[],
	prepare_services text[], prepare_urls text[], prepare_check_ms bigint[], prepare_expire_ms bigint[],
	prepare_digests bytea[], prepare_event_ids uuid[], prepare_unique_keys text[],
	prepare_within_ms bigint[], prepare_while_pending text[],
	decision_types text[], decision_ids text[], decision_partitions int[], decision_offsets bigint[],
	decision_prepared_ats timestamptz[], decisions text[],
	dead_letter_partitions int[], dead_letter_offsets bigint[], dead_letter_topics text[],
	dead_letter_keys bytea[], dead_letter_payloads bytea[], dead_letter_headers text[],
	note_ops text[], note_types text[], note_ids text[], note_partitions int[], note_offsets bigint[],
	note_prepared_ats timestamptz[], note_decisions text[], note_kepts text[],
	out clock timestamptz, out won int, out lost int, out promoted int, out duplicates int)
language plpgsql volatile set lock_timeout = '5s'
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp as $$
declare
	moment timestamptz := clock_timestamp();
	first_due timestamptz;
	promoted_tos timestamptz[];
	lost_partition int;
	step record;
	since timestamptz;
	decided record;
begin
	-- The commit does not wait for the disk. A crash loses a batch together with its row of lookback_log, and the
	-- batch is read again. A message is published after the row of its window in outbox.log, whose commit waits for
	-- the disk and so for all earlier commits. A batch that takes unique keys does wait (outbox.lookback_decide).
	perform set_config('synchronous_commit', 'off', true);
	won := 0;
	promoted := 0;
	duplicates := 0;
	select array_agg(coalesce(l.promoted_to, '-infinity') order by r.place),
		min(r.partition) filter (where coalesce(l.n, 0) <> r.n or coalesce(l.next_offset, r.start) <> r.start)
		into promoted_tos, lost_partition
	from unnest(partitions, ns, starts) with ordinality r (partition, n, start, place)
	left join lateral (
		select l.n, l.next_offset, l.promoted_to from outbox.lookback_log l
		where l.section = of_section and l.topic = of_topic and l.partition = r.partition
		order by l.n desc limit 1) l on true;
	if lost_partition is not null then
		raise exception 'another reader has gone on with partition % of %', lost_partition, of_topic
			using errcode = 'OR004';
	end if;

	-- A statement without rows costs a small batch as much as one with some.
	if cardinality(prepare_types) > 0 then
		with added as (
			insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section, source_partition,
				source_offset, topic, key, payload, headers, check_service, check_url, check_at,
				expires_at, digest, event_id, unique_key, within, while_pending)
			select r.biz_type, r.biz_id, moment, 'prepare', of_section, r.source_partition,
				r.source_offset, r.topic, r.key, r.payload, r.headers::json, r.check_service,
				r.check_url, moment + r.check_ms * interval '1 ms',
				moment + r.expire_ms * interval '1 ms', r.digest, r.event_id, r.unique_key,
				r.within_ms * interval '1 ms', r.while_pending
			from unnest(prepare_types, prepare_ids, prepare_partitions, prepare_offsets, prepare_topics,
					prepare_keys, prepare_payloads, prepare_headers, prepare_services, prepare_urls,
					prepare_check_ms, prepare_expire_ms, prepare_digests, prepare_event_ids,
					prepare_unique_keys, prepare_within_ms, prepare_while_pending)
				r (biz_type, biz_id, source_partition, source_offset, topic, key, payload, headers,
					check_service, check_url, check_ms, expire_ms, digest, event_id, unique_key, within_ms,
					while_pending)
			returning check_at
		)
		select min(a.check_at) into first_due from added a;
	end if;

	if cardinality(note_ops) > 0 then
		insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section, source_partition,
			source_offset, decision)
		select r.biz_type, r.biz_id, moment, 'tombstone', of_section, r.source_partition, r.source_offset,
			r.decision
		from unnest(note_ops, note_types, note_ids, note_partitions, note_offsets, note_decisions)
			r (op, biz_type, biz_id, source_partition, source_offset, decision)
		where r.op = 'tombstone';

		insert into outbox.lookback_conflict (section, biz_type, biz_id, prepared_at, kept, refused, source,
			source_partition, source_offset)
		select of_section, r.biz_type, r.biz_id, r.prepared_at, r.kept, r.decision, 'message',
			r.source_partition, r.source_offset
		from unnest(note_ops, note_types, note_ids, note_partitions, note_offsets, note_prepared_ats,
				note_kepts, note_decisions)
			r (op, biz_type, biz_id, source_partition, source_offset, prepared_at, kept, decision)
		where r.op = 'conflict';
	end if;

	if cardinality(decisions) > 0 or cardinality(dead_letter_topics) > 0 then
		select d.* into decided from outbox.lookback_decide(of_section, 'message', null, null, decision_types,
			decision_ids, array_replace(decision_prepared_ats, null, moment), decisions, decision_partitions,
			decision_offsets, dead_letter_topics, dead_letter_keys, dead_letter_payloads, dead_letter_headers,
			dead_letter_partitions, dead_letter_offsets) d;
		if decided.held is not null then
			raise exception '%', decided.error using errcode = case when decided.is_full then 'OR008' else 'OR007' end,
				detail = (select string_agg(h.place::text, ' ') from (
					select min(h.place) as place from unnest(decided.held) h (place)
					group by decision_partitions[h.place]) h);
		end if;
		won := decided.won;
		duplicates := decided.duplicates;
	end if;
	lost := cardinality(decisions) - won;

	for place in 1 .. cardinality(partitions) loop
		-- Usually nothing is due, and a call for each partition would take most of a small batch's time.
		continue when first_due > promoted_tos[place] is not false
			and horizons[place] > promoted_tos[place] is not true;
		-- A prepare of this batch that is due no later than promoted_to (because the clock went back, perhaps
		-- with a failover) would otherwise be missed.
		since := least(promoted_tos[place], first_due - interval '1 us');
		select p.promoted, p.promoted_to into step from outbox.lookback_promote(of_section,
			partitions[place], since, greatest(horizons[place], promoted_tos[place]),
			case when since < promoted_tos[place] then 2147483647 else promote_most end) p;
		promoted := promoted + step.promoted;
		promoted_tos[place] := step.promoted_to;
	end loop;
	-- The fence comes last, so that its rows are not changed again. If another reader came first, it fails, and all
	-- of the above with it.
	insert into outbox.lookback_log (section, topic, partition, n, next_offset, promoted_to, reader)
	select of_section, of_topic, r.partition, r.n + 1, r.next_offset, r.promoted_to, of_reader
	from unnest(partitions, ns, nexts, promoted_tos) r (partition, n, next_offset, promoted_to)
	order by r.partition;
	-- Unless lookback_tidy has deleted the row meanwhile; it never deletes the newest one.
	if exists (select from unnest(partitions, ns) r (partition, n)
		cross join lateral (
			select l.n from outbox.lookback_log l where l.section = of_section
				and l.topic = of_topic and l.partition = r.partition
			order by l.n desc limit 1) last
		where last.n <> r.n + 1) then
		raise exception 'another reader has gone on with a partition of %', of_topic
			using errcode = 'OR004';
	end if;
	clock := clock_timestamp();
end
$$;

-- Lists the rows of a batch that the tables refuse, for whatever reason: kind and place (from 1 on, in
-- the arrays of its kind), and the error. Writes the rows one by one, each in a savepoint, since a
-- decision needs the prepare before it, and undoes all of them at the end. So a refused row among
-- thousands costs as much as the others, and none of them waits for it.
create function outbox.lookback_refused(of_section text,
	prepare_types text[], prepare_ids text[], prepare_partitions int[], prepare_offsets bigint[],
	prepare_topics text[], prepare_keys bytea[], prepare_payloads bytea[], prepare_headers text[],
	prepare_services text[], prepare_urls text[], prepare_check_ms bigint[], prepare_expire_ms bigint[],
	prepare_digests bytea[], prepare_event_ids uuid[], prepare_unique_keys text[],
	prepare_within_ms bigint[], prepare_while_pending text[],
	decision_types text[], decision_ids text[], decision_partitions int[], decision_offsets bigint[],
	decision_prepared_ats timestamptz[], decisions text[],
	dead_letter_partitions int[], dead_letter_offsets bigint[], dead_letter_topics text[],
	dead_letter_keys bytea[], dead_letter_payloads bytea[], dead_letter_headers text[],
	note_ops text[], note_types text[], note_ids text[], note_partitions int[], note_offsets bigint[],
	note_prepared_ats timestamptz[], note_decisions text[], note_kepts text[])
returns table (kind text, place int, error text)
language plpgsql volatile set lock_timeout = '5s'
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp as $$
declare
	moment timestamptz := clock_timestamp();
	row_kinds text[] := array_fill('prepare'::text, array[cardinality(prepare_types)])
		|| array_fill('decision'::text, array[cardinality(decisions)])
		|| array_fill('dead_letter'::text, array[cardinality(dead_letter_topics)])
		|| array_fill('note'::text, array[cardinality(note_ops)]);
	row_kind text;
	at int := 0; -- the row's place in the arrays of its kind
	kinds text[] := '{}';
	places int[] := '{}';
	errors text[] := '{}';
begin
	begin
		for i in 1 .. cardinality(row_kinds) loop
			at := case when row_kinds[i] = row_kind then at + 1 else 1 end;
			row_kind := row_kinds[i];
			begin
				case row_kind
				when 'prepare' then
					insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section,
						source_partition, source_offset, topic, key, payload, headers,
						check_service, check_url, check_at, expires_at, digest, event_id, unique_key,
						within, while_pending)
					values (prepare_types[at], prepare_ids[at], moment, 'prepare', of_section,
						prepare_partitions[at], prepare_offsets[at], prepare_topics[at],
						prepare_keys[at], prepare_payloads[at], prepare_headers[at]::json,
						prepare_services[at], prepare_urls[at],
						moment + prepare_check_ms[at] * interval '1 ms',
						moment + prepare_expire_ms[at] * interval '1 ms',
						prepare_digests[at], prepare_event_ids[at], prepare_unique_keys[at],
						prepare_within_ms[at] * interval '1 ms', prepare_while_pending[at]);
				when 'decision' then
					perform outbox.lookback_decide(of_section, 'message', null, null,
						array[decision_types[at]], array[decision_ids[at]],
						array[coalesce(decision_prepared_ats[at], moment)],
						array[decisions[at]], array[decision_partitions[at]],
						array[decision_offsets[at]],
						'{}', '{}', '{}', '{}', '{}', '{}');
				when 'dead_letter' then
					perform outbox.lookback_decide(of_section, 'message', null, null,
						'{}', '{}', '{}', '{}', '{}', '{}', array[dead_letter_topics[at]],
						array[dead_letter_keys[at]], array[dead_letter_payloads[at]],
						array[dead_letter_headers[at]], array[dead_letter_partitions[at]],
						array[dead_letter_offsets[at]]);
				else
					insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section,
						source_partition, source_offset, decision)
					select note_types[at], note_ids[at], moment, 'tombstone', of_section,
						note_partitions[at], note_offsets[at], note_decisions[at]
					where note_ops[at] = 'tombstone';
				end case;
			exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
				kinds := kinds || row_kind;
				places := places || at;
				errors := errors || sqlerrm;
			end;
		end loop;
		raise exception 'undone' using errcode = 'OR006';
	exception when sqlstate 'OR006' then
		null;
	end;
	return query select f.* from unnest(kinds, places, errors) f;
end
$$;

-- The checker ------------------------------------------------------------------------------------
--
-- A claim is a number that the checker draws; it ends by itself at next_check. A later call must pass
-- the claim, and leaves rows unchanged that another claim holds by then.

-- Claims due rows: at most the given number of each type, the longest waiting ones first.
create function outbox.lookback_claim(of_section text, types text[], most int[], new_claim bigint,
	claim_ms bigint)
returns table (biz_type text, biz_id text, prepared_at timestamptz, attempts int, pendings int,
	check_service text, check_url text, is_expired boolean)
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
	return query update outbox.lookback_overdue o
	set claim = new_claim, next_check = clock_timestamp() + claim_ms * interval '1 ms'
	from (
		select d.place from unnest(types, most) t (biz_type, most)
		cross join lateral (
			select o.ctid as place from outbox.lookback_overdue o
			where o.section = of_section and o.biz_type = t.biz_type and o.state = 'overdue'
				-- in a separate query the time is a bound of the index scan
				and o.next_check <= (select clock_timestamp())
			order by o.next_check limit t.most for update skip locked) d) due
	where o.ctid = due.place
	returning o.biz_type, o.biz_id, o.prepared_at, o.attempts, o.pendings, o.check_service,
		o.check_url, coalesce(o.expires_at <= clock_timestamp(), false);
end
$$;

-- Stores the results of a claim's rows: decisions ('commit', 'rollback'), written unless another one
-- came first; for other rows when to ask again, whether the attempt counts, and whether the row is
-- parked for an operator. Returns how many decisions won and lost, how many rows belong to another
-- claim by now, the places (from 1 on, in the arrays) of the rows that it parked, and how many of the decisions
-- that won are of duplicates. If an open transaction has the unique key of a prepare, the business is called again.
create function outbox.lookback_settle(of_section text, of_claim bigint, types text[], ids text[],
	prepared_ats timestamptz[], results text[], errors text[], counts boolean[], next_ms bigint[],
	parks boolean[], out won int, out lost int, out strange int, out parked int[], out duplicates int)
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp as $$
declare
	answered record;
	decided record;
	touched int;
begin
	perform set_config('synchronous_commit', 'on', true);
	-- Read without a lock, which would come before that of the decision. A claim that ends in between
	-- does no harm: the first decision wins. A missing row was decided by another decider: the answer comes too
	-- late, and is recorded if it differs.
	select array_agg(r.biz_type) as types, array_agg(r.biz_id) as ids,
		array_agg(r.prepared_at) as prepared_ats, array_agg(r.result) as decisions,
		array_agg(r.number) as numbers into answered
	from unnest(types, ids, prepared_ats, results) with ordinality r (biz_type, biz_id, prepared_at, result, number)
	left join lateral (
		select true as is_there, o.claim from outbox.lookback_overdue o where o.biz_type = r.biz_type
			and o.biz_id = r.biz_id and o.prepared_at = r.prepared_at limit 1) o on true
	where r.result in ('commit', 'rollback') and (o.claim = of_claim or o.is_there is null);
	select d.* into decided from outbox.lookback_decide(of_section, 'check', null, null, answered.types,
		answered.ids, answered.prepared_ats, answered.decisions, null, null, null, null, null, null, null, null) d;
	won := decided.won;
	duplicates := decided.duplicates;
	lost := coalesce(cardinality(answered.types), 0) - coalesce(cardinality(decided.held), 0) - won;
	for place in 1 .. coalesce(cardinality(decided.held), 0) loop -- the business is asked again
		results[answered.numbers[decided.held[place]]] := 'held';
		errors[answered.numbers[decided.held[place]]] := decided.error;
		counts[answered.numbers[decided.held[place]]] := false;
		next_ms[answered.numbers[decided.held[place]]] := 1000;
		parks[answered.numbers[decided.held[place]]] := false;
	end loop;

	with told as (
		select r.*, o.place
		from ( -- sorted before the rows are locked
			select * from unnest(types, ids, prepared_ats, results, errors, counts, next_ms, parks)
				with ordinality
				r (biz_type, biz_id, prepared_at, result, error, counts, next_ms, parks, number)
			where r.result not in ('commit', 'rollback')
			order by r.biz_type, r.biz_id, r.prepared_at) r
		cross join lateral (
			select o.ctid as place from outbox.lookback_overdue o where o.biz_type = r.biz_type
				and o.biz_id = r.biz_id and o.prepared_at = r.prepared_at
				and o.claim = of_claim
			limit 1 for update) o
	), changed as (
		update outbox.lookback_overdue o set claim = null,
			state = case when told.parks then 'parked' else 'overdue' end,
			attempts = o.attempts + told.counts::int,
			pendings = o.pendings + (told.counts and told.result = 'pending')::int,
			last_result = told.result, last_error = told.error, last_at = clock_timestamp(),
			next_check = clock_timestamp() + told.next_ms * interval '1 ms'
		from told where o.ctid = told.place
		returning told.number, told.parks
	)
	select count(*), coalesce(array_agg(c.number::int order by c.number) filter (where c.parks), '{}')
		into touched, parked
	from changed c;
	strange := cardinality(types) - won - lost - touched;
end
$$;

-- The operator -----------------------------------------------------------------------------------

-- Is a row among those that an operator chose? {"type", "state": overdue or parked, "service",
-- "error": a part of it, "from", "to": range of prepared_at, without the end, "section", "until": rows that have
-- not been added or parked since this time}; a missing member restricts nothing.
create function outbox.lookback_is(o outbox.lookback_overdue, chosen jsonb) returns boolean
language sql stable as $$
	select (chosen operator(pg_catalog.->>) 'section' is null
			or o.section operator(pg_catalog.=) (chosen operator(pg_catalog.->>) 'section'))
		and (chosen operator(pg_catalog.->>) 'type' is null
			or o.biz_type operator(pg_catalog.=) (chosen operator(pg_catalog.->>) 'type'))
		and (chosen operator(pg_catalog.->>) 'state' is null
			or o.state operator(pg_catalog.=) (chosen operator(pg_catalog.->>) 'state'))
		and (chosen operator(pg_catalog.->>) 'service' is null
			or o.check_service operator(pg_catalog.=) (chosen operator(pg_catalog.->>) 'service'))
		and (chosen operator(pg_catalog.->>) 'error' is null
			or position(chosen operator(pg_catalog.->>) 'error' in o.last_error) operator(pg_catalog.>) 0)
		and (chosen operator(pg_catalog.->>) 'from' is null
			or o.prepared_at operator(pg_catalog.>=) (chosen operator(pg_catalog.->>) 'from')::pg_catalog.timestamptz)
		and (chosen operator(pg_catalog.->>) 'to' is null
			or o.prepared_at operator(pg_catalog.<) (chosen operator(pg_catalog.->>) 'to')::pg_catalog.timestamptz)
		and (chosen operator(pg_catalog.->>) 'until' is null
			or (o.overdue_at operator(pg_catalog.<=) (chosen operator(pg_catalog.->>) 'until')::pg_catalog.timestamptz
				and (o.state operator(pg_catalog.<>) 'parked' or o.last_at is null
					or o.last_at operator(pg_catalog.<=) (chosen operator(pg_catalog.->>) 'until')::pg_catalog.timestamptz)))
$$;
comment on function outbox.lookback_is(outbox.lookback_overdue, jsonb) is 'Returns whether an overdue prepare '
	'matches a filter. Members of the filter: type, state, service, error (a part of it), from and to (prepared_at, '
	'without the end), section, until (not added or parked since then). A missing member matches everything.';

-- Carries out an operator's request: 'commit', 'rollback', or 'retry', which asks the business again.
-- `chosen` selects rows of outbox.lookback_overdue as lookback_is does; with "ids": [[type, id], ...], it
-- selects any undecided prepares. If `whole`, it handles all of the ids or none. It does nothing if there
-- is no row (refused = 'OR002'), one was decided meanwhile ('OR005'), or more than `most` rows match ('OR009'); with
-- ids it then records which ones were decided differently. new_caller: as in outbox.audit.
create function outbox.lookback_operate(verb text, chosen jsonb, new_reason text, whole boolean,
	new_caller text default null, most bigint default null, out audit_id bigint, out done bigint, out done_of jsonb,
	out refused text, out duplicates bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
	select o.* into audit_id, done, done_of, duplicates from outbox.lookback_carry_out(verb, chosen, new_reason, whole,
		new_caller, most) o;
exception when sqlstate 'OR002' or sqlstate 'OR005' or sqlstate 'OR009' then
	done := 0;
	refused := sqlstate;
	insert into outbox.lookback_conflict (section, biz_type, biz_id, prepared_at, kept, refused, source, who)
	select d.section, d.biz_type, d.biz_id, d.prepared_at, d.decision, verb, 'operator',
		coalesce(new_caller || ' via ', '') || session_user
	from jsonb_array_elements(chosen -> 'ids') w (pair)
	cross join lateral (
		select d.* from outbox.lookback d
		where d.biz_type = w.pair ->> 0 and d.biz_id = w.pair ->> 1
			and d.kind >= 'decision' and d.kind <= 'decision' -- by the key
		order by d.prepared_at limit 1) d
	where verb <> 'retry' and d.decision <> verb;
end
$$;

-- The same, but fails with one of these codes. done_of: the number of handled rows by section. duplicates: how many
-- of them were committed and wrote no message. Fails with OR007 if an open transaction has the unique key of one of
-- them, and with OR008 if they have more unique keys than a transaction takes.
create function outbox.lookback_carry_out(verb text, chosen jsonb, new_reason text, whole boolean,
	new_caller text, most bigint, out audit_id bigint, out done bigint, out done_of jsonb, out duplicates bigint)
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
	part record;
	found_rows bigint := 0;
	won bigint;
	decided record;
begin
	perform outbox.replay_durable();
	perform outbox.require_read_committed();
	if verb not in ('commit', 'rollback', 'retry') then
		raise exception '% is nothing that can be done with a look-back', verb
			using errcode = 'invalid_parameter_value';
	end if;
	done := 0;
	done_of := '{}';
	duplicates := 0;
	for part in
		select u.section, array_agg(u.biz_type order by u.biz_type, u.biz_id, u.prepared_at) as types,
			array_agg(u.biz_id order by u.biz_type, u.biz_id, u.prepared_at) as ids,
			array_agg(u.prepared_at order by u.biz_type, u.biz_id, u.prepared_at) as prepared_ats
		from (
			select p.section, p.biz_type, p.biz_id, p.prepared_at
			from jsonb_array_elements(chosen -> 'ids') w (pair)
			cross join lateral (
				select p.* from outbox.lookback p
				where p.biz_type = w.pair ->> 0 and p.biz_id = w.pair ->> 1
					and p.kind >= 'prepare' and p.kind <= 'prepare' -- by the key
				order by p.prepared_at limit 1) p
			left join lateral (
				select true as decided from outbox.lookback d where d.biz_type = p.biz_type
					and d.biz_id = p.biz_id and d.prepared_at = p.prepared_at
					and d.kind = 'decision'
				limit 1) d on true
			where d.decided is null
			union all
			select o.section, o.biz_type, o.biz_id, o.prepared_at
			from outbox.lookback_overdue o
			where chosen -> 'ids' is null and outbox.lookback_is(o, chosen)
		) u group by u.section order by u.section
	loop
		found_rows := found_rows + cardinality(part.ids);
		if found_rows > most then
			raise exception 'more than % match', most using errcode = 'OR009';
		end if;
		if verb = 'retry' then
			update outbox.lookback_overdue o set state = 'overdue', claim = null, attempts = 0,
				pendings = 0, next_check = clock_timestamp(),
				expires_at = o.expires_at + (clock_timestamp() - o.overdue_at),
				overdue_at = clock_timestamp()
			from (
				select o.ctid as place
				from unnest(part.types, part.ids, part.prepared_ats)
					w (biz_type, biz_id, prepared_at)
				cross join lateral (
					select o.ctid from outbox.lookback_overdue o
					where o.biz_type = w.biz_type and o.biz_id = w.biz_id
						and o.prepared_at = w.prepared_at
					limit 1 for update) o) t
			where o.ctid = t.place;
			get diagnostics won = row_count;
		else
			select d.* into decided from outbox.lookback_decide(part.section, 'operator',
				coalesce(new_caller || ' via ', '') || session_user, new_reason, part.types, part.ids, part.prepared_ats,
				array_fill(verb, array[cardinality(part.ids)]), null, null, null, null, null,
				null, null, null) d;
			if decided.held is not null then
				raise exception '%', decided.error
					using errcode = case when decided.is_full then 'OR008' else 'OR007' end,
						hint = case when decided.is_full then 'nothing was changed: decide fewer ids at a time'
							else 'nothing was changed: end that transaction, or try again later' end;
			end if;
			won := decided.won;
			duplicates := duplicates + decided.duplicates;
		end if;
		done := done + won;
		done_of := done_of || jsonb_build_object(part.section, won);
	end loop;
	if done = 0 or (whole and done < jsonb_array_length(chosen -> 'ids')) then
		raise exception '% of % undecided', found_rows, coalesce(jsonb_array_length(chosen -> 'ids'), 0)
			using errcode = case when found_rows > done then 'OR005' else 'OR002' end;
	end if;
	insert into outbox.audit (caller, verb, target, reason)
	values (new_caller, 'lookback ' || verb, jsonb_build_object('filter', chosen, 'rows', done,
		'sections', done_of), new_reason)
	returning id into audit_id;
end
$$;

-- Upkeep -----------------------------------------------------------------------------------------

-- Deletes rows of lookback_log from which no reader continues any longer, and conflicts that are older
-- than the retention. One call at a time: a second one does nothing and returns false.
create function outbox.lookback_tidy(retain_ms bigint) returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
	if not outbox.upkeep_begin('lookback_tidy', false) then
		return false;
	end if;
	delete from outbox.lookback_log l using (
		select section, topic, partition, max(n) as n from outbox.lookback_log
		group by section, topic, partition) newest
	where l.section = newest.section and l.topic = newest.topic
		and l.partition = newest.partition and l.n < newest.n;
	delete from outbox.lookback_conflict c
	where c.at < clock_timestamp() - retain_ms * interval '1 ms';
	return true;
end
$$;
