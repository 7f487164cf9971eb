-- oldest-program: 0.1.0
--
-- A rebase makes a database readable again whose rows were carried here from another cluster: by a
-- dump, or by logical replication. Their txids are that cluster's. Nothing may be compared with them
-- here but the snapshots that came along, so outbox.take refuses such publishers.
--
-- One statement judges every row that it sees by those snapshots: which publishers have published it? It
-- takes a snapshot of this cluster, `base`, and gives new txids to the rows that some publisher has not
-- published: one number for each set of publishers, out of those that no transaction of a cluster ever
-- has, since initdb uses them up. A row that all have published keeps its txid, or gets the lowest of
-- these numbers if that txid would mean anything else to `base`. Then `base` shows all of them, and each
-- publisher's log goes on with two snapshots: `base` without the numbers of the sets that it is in, which
-- is what it has acknowledged, and `base`. Between the two lies one open window, which holds what the
-- publisher has not published, in the order of ids; that is the order in which the transactions of a key
-- committed. Rows that have not committed yet are invisible in `base` and come with later windows. So
-- writers need not be stopped, and wait for nothing here.
--
-- Because a row has one txid for all publishers, a rebase always covers all publishers.
--
-- Rows that were written here since have txids of this cluster, and the carried snapshots may show them
-- as visible. But every row that a publisher has published existed when it wrote its newest log row: so
-- it has not published a row with a later created_at.

-- For each row that needs a new txid: its place, and the set of the publishers (by name, the first is 1,
-- then 2, 4, ...) that have not published it.
create function outbox.rebase_rows(out leaf oid, out place tid, out pending bigint)
returns setof record language sql stable set jit = off as $$
	with numbered as (
		select s.name, 1::bigint << (row_number() over (order by s.name) - 1)::int as bit
		from outbox.publisher s
	), readers as materialized (
		select b.bit, p.shard, p.shards, p.written_at, p.acked_id, p.ticks[1] as acked,
			p.ticks[2] as first_window
		from outbox.progress p join numbered b on b.name = p.publisher where p.n is not null
	), here as materialized (
		select pg_snapshot_xmax(pg_current_snapshot()) as xmax,
			array(select pg_snapshot_xip(pg_current_snapshot())) as xip
	)
	select m.tableoid, m.ctid, j.pending
	from here cross join outbox.message m cross join lateral (
		select coalesce(bit_or(r.bit), 0) as pending from readers r
		where outbox.bucket_shard(m.bucket, r.shards) = r.shard
			and not (m.created_at <= r.written_at
				and (pg_visible_in_snapshot(m.txid, r.acked)
					or r.first_window is not null and m.id <= r.acked_id
						and pg_visible_in_snapshot(m.txid, r.first_window)))
	) j
	where j.pending <> 0 or m.txid < '400' or m.txid >= here.xmax or m.txid = any (here.xip)
$$;

-- Was any row carried here from another cluster?
create function outbox.rebase_is_needed() returns boolean language sql stable as $$
	select outbox.has_rows_of_the_future()
		or exists (select from outbox.progress p where p.written_elsewhere)
$$;

-- The plan of a rebase: for each publisher the rows that it would publish, and, without a publisher, the rows
-- that only get another txid.
create function outbox.rebase_plan(out publisher text, out elsewhere boolean, out rows bigint,
	out identity text) -- its first eight digits
returns setof record language sql stable set search_path = pg_catalog, pg_temp as $$
	with numbered as (
		select s.name, left(s.identity::text, 8) as identity,
			1::bigint << (row_number() over (order by s.name) - 1)::int as bit
		from outbox.publisher s
	), counted as materialized (
		select r.pending, count(*) as rows from outbox.rebase_rows() r group by r.pending
	)
	select b.name, outbox.has_rows_of_the_future()
			or exists (select from outbox.progress p where p.publisher = b.name and p.written_elsewhere),
		coalesce((select sum(c.rows) from counted c where c.pending & b.bit <> 0), 0)::bigint,
		b.identity
	from numbered b
	union all
	select null, null, coalesce((select c.rows from counted c
		where c.pending = 0 and outbox.rebase_is_needed()), 0), null
	order by 1
$$;

-- The acknowledged snapshot of a publisher: base, without the rows with these numbers.
create function outbox.rebase_acknowledged(base pg_snapshot, numbers bigint[]) returns pg_snapshot
language sql immutable as $$
	select case when cardinality(numbers) = 0 then base else format('%s:%s:%s',
		(select min(x) from unnest(numbers) x), pg_snapshot_xmax(base),
		(select string_agg(y.x::text, ',' order by y.x) from (select unnest(numbers) as x
			union select x::text::bigint from pg_snapshot_xip(base) x) y))::pg_snapshot end
$$;

-- The sequence of outbox.message.id. last_id: the last id that it gave out. kept_id: the largest id in the
-- message table, in the tables of parked, scheduled and skipped messages, and in the newest log rows. kept_id > last_id: the
-- sequence went back, and gives ids out again. As its definer: a sequence has privileges of its own. The ids are read
-- first, so that no message that comes meanwhile has a larger one than the sequence.
create function outbox.message_ids(out last_id bigint, out kept_id bigint, out increment bigint, out cache bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
	kept_id := greatest(0, (select max(m.id) from outbox.message m),
		(select max(p.id) from outbox.parked p), (select max(p.was_id) from outbox.parked p
			where p.was_id is not null),
		(select max(s.id) from outbox.scheduled s), (select max(s.was_id) from outbox.scheduled s
			where s.was_id is not null),
		(select max(k.last_id) from outbox.skipped k), (select max(n.id) from outbox.renumbered n),
		(select max(greatest(p.acked_id, (select max(x) from unnest(p.listed_ids) x))) from outbox.progress p));
	select case when q.is_called then q.last_value else q.last_value - 1 end, s.seqincrement, s.seqcache
		into last_id, increment, cache
		from outbox.message_id_seq q, pg_sequence s
		where s.seqrelid = 'outbox.message_id_seq'::regclass;
end
$$;
comment on function outbox.message_ids() is 'Returns the last id of the sequence of outbox.message.id, the largest '
	'id in use, and the INCREMENT and CACHE of the sequence. kept_id above last_id: the sequence was reset and would '
	'repeat ids.';

-- Raises that sequence above everything that is kept, and above the id `seen`, which somebody saw it give out.
-- raised_to: the id behind which it continues; null: it was right, or descends, which only an operator can repair.
-- It continues some ids higher, so that it does not go back for writers which draw ids meanwhile.
create function outbox.message_ids_raise(seen bigint, out last_id bigint, out kept_id bigint, out increment bigint,
	out cache bigint, out raised_to bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
	select i.last_id, greatest(i.kept_id, seen), i.increment, i.cache into last_id, kept_id, increment, cache
		from outbox.message_ids() i;
	if last_id < kept_id and increment > 0 then
		raised_to := setval('outbox.message_id_seq', kept_id + 1000);
	end if;
end
$$;

-- Neither logical replication nor some restores carry the sequences behind the rows.
create function outbox.rebase_sequences() returns void language plpgsql volatile as $$
declare
	relation text;
	col text;
	used bigint;
	given bigint;
begin
	for relation, col in values ('outbox.message', 'id'),
		('outbox.replay', 'id'), ('outbox.audit', 'id')
	loop
		execute format('select max(%I) from %s', col, relation) into used;
		if relation = 'outbox.message' then
			used := (select i.kept_id from outbox.message_ids() i);
		end if;
		execute format('select last_value from %s', pg_get_serial_sequence(relation, col))
			into given;
		if used > given then
			perform setval(pg_get_serial_sequence(relation, col), used);
		end if;
	end loop;
end
$$;

-- Writes the log row after the newest one of a shard, without an owner and with a new epoch. Folds all
-- destinations of the log into their table.
create function outbox.rebase_log(of_publisher text, of_shard int, new_n bigint, new_ticks pg_snapshot[],
	new_first_tick bigint, new_acked_id bigint, new_listed_tick bigint, new_listed_ids bigint[])
returns void language plpgsql volatile as $$
declare
	folded bigint := (select p.folded from outbox.progress p
		where p.publisher = of_publisher and p.shard = of_shard);
begin
	if new_n is null or outbox.log_partition_make(of_publisher, of_shard, new_n) = 'busy' then
		raise exception 'the log of publisher % is locked by somebody else, or has no row', of_publisher
			using errcode = 'lock_not_available';
	end if;
	insert into outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick,
		acked_id, ticks, listed_tick, listed_ids, destinations, folded, timeline, system_identifier)
	values (of_publisher, of_shard, new_n,
		('x' || translate(gen_random_uuid()::text, '-', ''))::bit(63)::bigint, 0, '', '-infinity',
		new_first_tick, new_acked_id, new_ticks, new_listed_tick, new_listed_ids,
		'{}', new_n, outbox.timeline(), outbox.system_identifier());
	perform outbox.destinations_fold(of_publisher, of_shard, folded, new_n);
end
$$;

-- Rows from another cluster: each publisher opens one window with the rows that it has not published.
create function outbox.rebase_carried(out restamped bigint) returns bigint
language plpgsql volatile as $$
declare
	base pg_snapshot;
	sets bigint[];    -- of publishers
	numbers bigint[]; -- their txids
	own bigint[];     -- of the publisher
	reader record;
	next_tick bigint;
begin
	with here as materialized (
		select pg_current_snapshot() as snapshot
	), judged as materialized (
		select * from outbox.rebase_rows()
	), numbered as materialized (
		select d.pending, 2 + row_number() over (order by d.pending) as number
		from (select 0::bigint as pending union select j.pending from judged j) d
	), changed as (
		update outbox.message m set txid = n.number::text::xid8
		from judged j join numbered n on n.pending = j.pending
		where m.tableoid = j.leaf and m.ctid = j.place
		returning n.pending
	)
	select h.snapshot, n.sets, n.numbers, (select count(*) from changed)
		into base, sets, numbers, restamped
		from here h, (select array_agg(pending order by pending) as sets,
			array_agg(number order by pending) as numbers from numbered) n;
	if cardinality(sets) > 397 or (select count(*) from outbox.publisher) > 62 or pg_snapshot_xmin(base) < '400' then
		raise exception 'too many publishers have published too many different sets of rows: % sets, and '
			'397 is the most; drop publishers that are not needed', cardinality(sets);
	end if;

	-- Rows of the other tables are judged by their txids only when a partition is to go, where one of
	-- the future would look like one that has just come, until that future is there.
	update outbox.lookback l set txid = '3' where l.txid >= pg_snapshot_xmax(pg_current_snapshot());
	update outbox.processed p set txid = '3' where p.txid >= pg_snapshot_xmax(pg_current_snapshot());
	-- The row of a unique key is judged as its message is, if it waits for that.
	update outbox.unique_ledger l set txid = '3' where l.txid >= pg_snapshot_xmax(pg_current_snapshot())
		or l.waits_for is not null and l.message_id is not null;
	update outbox.unique_ledger l set txid = m.txid from outbox.message m
		where l.waits_for is not null and m.id = l.message_id and m.created_at = l.at and m.event_id = l.event_id;

	-- the start of a publisher can no longer be determined here, and serves only for reports
	update outbox.publisher set start = '3:3:';
	for reader in
		select p.*, 1::bigint << (dense_rank() over (order by p.publisher) - 1)::int as bit
		from outbox.progress p order by p.publisher, p.shard
	loop
		own := array(select u.number from unnest(sets, numbers) u (pending, number)
			where u.pending & reader.bit <> 0 order by u.number);
		-- rows of a published listed window that must still leave their tables
		perform outbox.unpark(reader.publisher, reader.shard, l.listed_ids, true) from outbox.log l
			where l.publisher = reader.publisher and l.shard = reader.shard and l.n = reader.n
				and l.listed_tick <= l.first_tick;
		perform outbox.rebase_log(reader.publisher, reader.shard, reader.n + 1,
			case when cardinality(own) = 0 then array[base]
				else array[outbox.rebase_acknowledged(base, own), base] end,
			reader.first_tick + cardinality(reader.ticks) - 1, 0, null, null);
		-- kept back from a window that was not published to its end: the new window takes its place
		next_tick := reader.first_tick + cardinality(reader.ticks) - 1
			+ case when cardinality(own) = 0 then 0 else 1 end;
		update outbox.parked p set tick = next_tick
			where p.publisher = reader.publisher and p.shard = reader.shard and p.tick > reader.first_tick;
		update outbox.scheduled s set tick = next_tick
			where s.publisher = reader.publisher and s.shard = reader.shard and s.tick > reader.first_tick;
	end loop;

	-- requests and replays select rows by snapshots, which do not have the new txids: so they end here
	update outbox.parked_request r set ended_at = clock_timestamp() where r.ended_at is null;
	update outbox.parked p set txid = pg_current_xact_id() where p.txid <> pg_current_xact_id();
	update outbox.replay r set state = 'stopped', nonce = 0, lease_until = '-infinity',
		system_identifier = 0 where r.state <> 'finished';
	perform outbox.rebase_sequences();
end
$$;

-- A copy of the disk, or a database made from a template: transaction ids mean here what they meant in
-- the original, windows stay as they are, and only a new epoch begins.
create function outbox.rebase_epochs() returns void language plpgsql volatile as $$
declare
	newest outbox.progress;
begin
	for newest in
		select p.* from outbox.progress p where p.n is not null order by p.publisher, p.shard
	loop
		perform outbox.rebase_log(newest.publisher, newest.shard, newest.n + 1, newest.ticks,
			newest.first_tick, newest.acked_id, newest.listed_tick, newest.listed_ids);
	end loop;
end
$$;

-- new_identity: each publisher gets another one, for a copy whose original goes on publishing. All records
-- in Kafka then belong to another database, including those that the original wrote before it was copied.
--
-- Fails with lock_not_available, and unique_violation if a publisher is owned after all: then nothing
-- has changed.
create function outbox.rebase(new_reason text, new_identity boolean, new_caller text default null,
	out audit_id bigint, out restamped bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '10s' set row_security = off as $$
declare
	carried boolean;
	reader record;
	target jsonb;
begin
	perform outbox.require_read_committed();
	perform outbox.timeline();
	perform outbox.replay_durable();
	-- Keeps partitions unchanged, and other rebases out; writers are not affected.
	perform outbox.upkeep_begin('partitions', true);
	lock table outbox.message in row exclusive mode;
	lock table outbox.publisher in share row exclusive mode;
	carried := outbox.rebase_is_needed();
	if not carried and not new_identity then
		raise exception 'nothing was carried here from another database cluster: there is nothing '
			'to rebase; a copy whose original goes on publishing needs --new-identity';
	end if;
	for reader in select p.publisher, p.shard, p.owner from outbox.progress p
		where p.lease_until > clock_timestamp() and not p.written_elsewhere
	loop
		raise exception 'publisher % shard % is owned by %: stop it', reader.publisher, reader.shard,
			reader.owner;
	end loop;
	if exists (select from outbox.progress p where p.written_at > clock_timestamp()) then
		raise exception 'the clock of this server is behind the newest row of the log: set it, since '
			'rows written here are recognised by their time';
	end if;

	-- The generated buckets are of this server, while the shards' progress is of buckets of the other one.
	for reader in select s.name, s.shards from outbox.publisher s
		where s.shards > 1 and s.hashed <> outbox.bucket_of('outbox-relay', null)
	loop
		raise exception 'publisher % has % shards, and its keys belong to other shards here, because the server that the '
			'rows come from has another byte order', reader.name, reader.shards
			using hint = format('run `outbox-relay publisher split %s --shards 1` there and copy the database again',
				reader.name);
	end loop;
	update outbox.publisher set hashed = default where hashed <> outbox.bucket_of('outbox-relay', null);

	-- after all questions about what was carried, which the new identifier would answer otherwise
	if carried then
		perform outbox.choose_evidence(true);
	end if;
	target := jsonb_build_object(
		'publishers_from', (select jsonb_object_agg(p.publisher, p.system_identifier::text)
			from outbox.progress p),
		'to', outbox.system_identifier()::text);
	-- the command of a split, if it runs at all, runs in the original
	update outbox.publisher set split_to = null, drain_to = null;
	restamped := 0;
	if carried then
		restamped := outbox.rebase_carried();
	else
		perform outbox.rebase_epochs();
	end if;
	if new_identity then
		target := target || jsonb_build_object('identities_from',
			(select jsonb_object_agg(s.name, s.identity) from outbox.publisher s));
		update outbox.publisher set identity = gen_random_uuid(), identity_since = clock_timestamp();
		-- no record of the new identity is in Kafka: the publishers begin at the ends of the
		-- partitions, and skip all records that the original wrote after the copy
		delete from outbox.destination;
	end if;
	insert into outbox.audit (caller, verb, target, reason)
	values (new_caller, 'rebase', target || jsonb_build_object('rows', restamped), new_reason)
	returning id into audit_id;
end
$$;

revoke execute on function outbox.rebase(text, boolean, text) from public;
