-- oldest-program: 0.1.0
-- Publishers and their one log: progress, lease and fence in the same insert.
--
-- A publisher is a named reader of outbox.message. Its whole state is the newest row of outbox.log for
-- each of its shards; rows are only ever inserted, n is dense, and the row n is made from the row
-- n - 1 with the nonce that its writer put there. An owner whose insert fails has lost the shard.
--
-- ticks[1] is the acknowledged snapshot, number first_tick: everything visible in it is published.
-- ticks[k + 1] is the snapshot of the k-th open window, number first_tick + k: the rows visible in it
-- and not in ticks[k], ordered by id. In the first open window the rows up to acked_id are published.
-- "Published" means here: the row is in Kafka, in outbox.parked (0007_parked.sql) or in outbox.scheduled
-- (0009_scheduled.sql).
--
-- One of the open windows may be a listed one, number listed_tick: rows of outbox.parked and
-- outbox.scheduled, listed by their ids, because due times would select other rows after a crash. Its
-- snapshot is that of the window before.

create table outbox.publisher (
	name text collate "C" primary key
		constraint publisher_name_is_lower_case_letters_digits_dash_underscore
		check (name ~ '^[a-z0-9_-]{1,40}$'),
	shards int not null constraint shards_are_1_to_64 check (shards between 1 and 64),
	-- a split under way: no window opens beyond drain_to; null drain_to: none opens at all
	split_to int constraint split_to_is_1_to_64 check (split_to between 1 and 64),
	drain_to pg_snapshot,
	paused_at timestamptz, -- an operator paused it: no window opens, and no row is read or sent; null: it is not paused
	-- topics that an operator paused, each with the time: {"orders": "2026-11-27T19:30:00Z"}. Their rows are parked
	-- instead of being sent. null: none is paused.
	paused_topics jsonb,
	-- the publisher begins behind this snapshot: it publishes no row that is visible in it, and no row that was
	-- created before start_at (null: any time)
	start pg_snapshot not null,
	start_at timestamptz,
	created_at timestamptz not null default clock_timestamp(),
	-- Each position has the first eight digits: two databases may have publishers of one name and publish to one
	-- topic. A copy of the database has the same identity until a rebase changes it (0008_rebase.sql).
	identity uuid not null default gen_random_uuid(),
	identity_since timestamptz, -- null: since the publisher's creation
	-- the bucket of a fixed key: a dump carries it to a server of another byte order, which has other buckets
	hashed smallint not null default outbox.bucket_of('outbox-relay', null)
);

comment on table outbox.publisher is 'The publishers: named readers of outbox.message, each with its own progress. '
	'The commands `outbox-relay publisher` change them.';
comment on column outbox.publisher.name is 'Name of the publisher.';
comment on column outbox.publisher.shards is 'Number of shards. The key of a message determines its shard '
	'(outbox.shard_of).';
comment on column outbox.publisher.split_to is 'New number of shards while a split is under way, otherwise null.';
comment on column outbox.publisher.paused_at is 'Time at which an operator paused the publisher. null: it is not '
	'paused.';
comment on column outbox.publisher.paused_topics is 'Topics that an operator paused, as a JSON object: the name of '
	'each topic with the time of its pause. null: no topic is paused.';
comment on column outbox.publisher.drain_to is 'During a split no window opens beyond this snapshot. null during a '
	'split: no window opens at all.';
comment on column outbox.publisher.start is 'The publisher publishes no message that is visible in this snapshot.';
comment on column outbox.publisher.start_at is 'The publisher publishes no message that was created before this '
	'time. null: no such limit.';
comment on column outbox.publisher.created_at is 'Time at which the publisher was created.';
comment on column outbox.publisher.identity is 'Its first eight digits are part of every position in Kafka, so that '
	'records of publishers with the same name in different databases can be distinguished. `outbox-relay publisher '
	'rebase` changes it.';
comment on column outbox.publisher.identity_since is 'Time of the last change of identity. null: identity has not '
	'changed since created_at.';
comment on column outbox.publisher.hashed is 'Bucket of the key outbox-relay on the server that created the publisher. '
	'A server of another byte order has other buckets, so that shards would not continue with their own keys there.';

create table outbox.log (
	publisher text collate "C" not null,
	shard int not null,
	n bigint not null,
	epoch bigint not null,
	nonce bigint not null,
	owner text not null,
	lease_until timestamptz not null,
	first_tick bigint not null,
	acked_id bigint not null,
	ticks pg_snapshot[] not null,
	listed_tick bigint,
	listed_ids bigint[],
	due bigint[], -- where the last list of scheduled rows ended (outbox.scheduled_next)
	-- The destinations that changed since the row before, each with its change:
	--   {"topic": [partition count, {"partition": offset}]}         the destination is open
	--   {"topic": [partition count, {"partition": offset}, false]}  the owner closes it
	--   {"topic": null}                                             the topic is gone
	-- Offsets mean what they mean in outbox.destination.
	destinations jsonb not null,
	-- outbox.destination holds what this row and the rows before it say, up to the row of this number
	folded bigint not null,
	-- null, or [consecutive owners that ended without release and progress; how many of the last ones ended with
	-- the same single row in flight; 1 while only one row, the first behind acked_id, is in flight]
	deaths int[],
	written_at timestamptz not null default clock_timestamp(),
	txid xid8 not null default pg_current_xact_id(),
	timeline int not null,
	system_identifier bigint not null,
	primary key (publisher, shard, n)
) partition by range (publisher, shard, n);

comment on table outbox.log is 'Progress, lease and fence of each shard; insert-only. The newest row of a shard '
	'holds its current state.';
comment on column outbox.log.publisher is 'Name of the publisher.';
comment on column outbox.log.shard is 'Number of the shard, from 0.';
comment on column outbox.log.n is 'Number of the row within its shard. Each new row is one higher, and the primary '
	'key rejects a second writer.';
comment on column outbox.log.epoch is 'Part of the position of each record in Kafka. It changes whenever positions '
	'could otherwise repeat, for example after a failover.';
comment on column outbox.log.nonce is 'Random number of the row''s writer. Only an owner that knows the nonce of the '
	'newest row can add the next row.';
comment on column outbox.log.owner is 'Process that owns the shard.';
comment on column outbox.log.lease_until is 'End of the lease. After it another process may take the shard.';
comment on column outbox.log.first_tick is 'Number of the snapshot ticks[1].';
comment on column outbox.log.acked_id is 'In the first open window, all rows up to this id are published.';
comment on column outbox.log.ticks is 'Snapshots. Every row that is visible in the first one is published. Each '
	'further one is the end of an open window.';
comment on column outbox.log.listed_tick is 'Number of the open window that lists parked or scheduled rows. null: '
	'there is none.';
comment on column outbox.log.listed_ids is 'Ids of the rows of that window.';
comment on column outbox.log.due is 'Where the last search for due scheduled rows ended.';
comment on column outbox.log.destinations is 'Topics that changed in this row: {"topic": [partition count, '
	'{"partition": offset}]} for an open topic, with a third element false for a topic that is closed, and null '
	'instead of the array for a removed one.';
comment on column outbox.log.folded is 'outbox.destination includes the log rows up to this number.';
comment on column outbox.log.deaths is 'Three numbers: how many owners in a row ended without release and without '
	'progress; how many of the last of these had the same single row in flight; 1 while only one row is in flight. '
	'null: no owner ended like that.';
comment on column outbox.log.written_at is 'Time at which the row was written.';
comment on column outbox.log.txid is 'Id of the top-level transaction that wrote the row, never of a savepoint.';
comment on column outbox.log.timeline is 'Timeline of the server that wrote the row.';
comment on column outbox.log.system_identifier is 'System identifier of the database cluster that wrote the row.';

-- In PL/pgSQL, which keeps the plan, because every tick calls this.
create function outbox.timeline() returns int
language plpgsql volatile as $$
begin
	if pg_catalog.pg_is_in_recovery() then
		raise exception 'this server is a standby' using errcode = 'read_only_sql_transaction';
	end if;
	return ('x' operator(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(
		pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int;
end
$$;
comment on function outbox.timeline() is 'Returns the timeline that the server writes now. Fails on a standby, '
	'because a relay must not read from one.';

-- A server that refuses pg_control_system() gets a variant that returns a stored negative number
-- (outbox.choose_evidence); real identifiers are positive.
create function outbox.system_identifier() returns bigint
language plpgsql stable as $$
begin
	return (select c.system_identifier from pg_catalog.pg_control_system() c);
end
$$;
comment on function outbox.system_identifier() is 'Returns the system identifier of this database cluster, or a '
	'stored negative number if the server refuses pg_control_system().';

-- A shard has a range of buckets, so that a range condition on an index finds its rows. With 4 shards, shard 0 has the
-- buckets 0 to 8191. The functions are in PL/pgSQL: the server would set up an inlined expression again for each partition at every
-- tick.
create function outbox.bucket_shard(bucket smallint, shards int) returns int
language plpgsql immutable parallel safe as $$
begin
	return bucket::int operator(pg_catalog.*) shards operator(pg_catalog./) 32768;
end
$$;
comment on function outbox.bucket_shard(smallint, int) is 'Returns the shard of a bucket, as of outbox.message.bucket: '
	'0 to shards - 1.';

-- A shard's buckets begin here and end in front of those of the next shard.
create function outbox.first_bucket(shard int, shards int) returns int
language plpgsql immutable parallel safe as $$
begin
	return (shard operator(pg_catalog.*) 32768 operator(pg_catalog.+) shards operator(pg_catalog.-) 1)
		operator(pg_catalog./) shards;
end
$$;
comment on function outbox.first_bucket(int, int) is 'Returns the first bucket of a shard. Its last one is in front of '
	'the first bucket of the next shard; for the last shard it is 32767.';

create function outbox.shard_of(key bytea, shards int) returns int
language plpgsql immutable parallel safe as $$
begin
	return outbox.bucket_shard(outbox.bucket_of(null, key), shards);
end
$$;
comment on function outbox.shard_of(bytea, int) is 'Returns the shard of a key, given as its published bytes. null is '
	'in shard 0.';

-- The destinations of a shard: one row for each topic that it published to. A destination's
-- state is its row here, updated by the log rows behind `folded`. Every so many
-- log rows the owner folds them into this table, in the transaction of a log row that says so: the fence
-- of the log holds for this table as well, and no log row ever carries all destinations.
--
-- An open destination may have records that progress in the log does not cover; its owner opens it by
-- a log row before the first record, and closes it when it has not published to it for a while.
-- Therefore a take-over reads only open destinations.
create table outbox.destination (
	publisher text collate "C" not null,
	shard int not null,
	topic text collate "C" not null,
	partitions int not null,
	-- for each partition from 0 on: progress covers the shard's records up to this offset, so a tail
	-- begins behind it. -1: in front of the first record; -2: unknown
	offsets bigint[] not null,
	open boolean not null,
	n bigint not null, -- number of the log row that changed it last
	primary key (publisher, shard, topic)
) with (fillfactor = 50); -- room for HOT updates: no index has a column that a fold usually changes

comment on table outbox.destination is 'The topics that each shard publishes to, with the offsets up to which their '
	'partitions are covered by the stored progress.';
comment on column outbox.destination.publisher is 'Name of the publisher.';
comment on column outbox.destination.shard is 'Number of the shard.';
comment on column outbox.destination.topic is 'Kafka topic.';
comment on column outbox.destination.partitions is 'Number of partitions of the topic.';
comment on column outbox.destination.offsets is 'For each partition, from 0: all records of the shard up to this '
	'offset are covered by the stored progress, so a takeover reads the partition behind it. -1: the partition has '
	'no such record; -2: unknown.';
comment on column outbox.destination.open is 'false: the topic was idle for topic_idle, and a takeover does not read '
	'its partitions.';
comment on column outbox.destination.n is 'Number of the log row that changed the topic last.';
create index destination_open on outbox.destination (publisher, shard, topic) where open;

-- Folds the changes of destinations in the log rows after `after_n`, up to `upto_n`, into their table.
-- The caller has inserted the log row `upto_n`, which fails if the caller lost the shard. In PL/pgSQL,
-- which keeps its plan.
create function outbox.destinations_fold(of_publisher text, of_shard int, after_n bigint, upto_n bigint)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
	-- One topic after the other, from an array of its changes and from its row in the table, which the primary
	-- key finds. Do not join topics with their partitions: a planner without statistics of a new table chooses
	-- a nested loop over all of them, which takes seconds for 2,000 topics.
	with delta as (
		select t.key collate "C" as topic, array_agg(l.n order by l.n) as ns,
			array_agg(t.value order by l.n) as sayings,
			-- changes before a `null` belong to a topic that no longer exists
			coalesce(max(l.n) filter (where t.value = 'null'), -1) as gone_at
		from outbox.log l cross join lateral jsonb_each(l.destinations) t
		where l.publisher = of_publisher and l.shard = of_shard and l.n > after_n and l.n <= upto_n
		group by t.key
	), newest as materialized (
		select d.topic, d.ns[cardinality(d.ns)] as n, d.sayings[cardinality(d.sayings)] as value,
			d.ns, d.sayings, d.gone_at
		from delta d
	), gone as (
		delete from outbox.destination t
		where t.publisher = of_publisher and t.shard = of_shard
			and t.topic = any (array(select w.topic from newest w where w.value = 'null'))
	)
	insert into outbox.destination as t (publisher, shard, topic, partitions, offsets, open, n)
	select of_publisher, of_shard, w.topic, (w.value ->> 0)::int, o.offsets,
		w.value -> 2 is null, w.n
	from newest w cross join lateral (
		select array_agg(p.at order by p.partition) as offsets from (
			select distinct on (q.partition) q.partition, q.at from (
				select k.key::int as partition, k.value::bigint as at, v.n
				from unnest(w.ns, w.sayings) v (n, value)
				cross join lateral jsonb_each_text(v.value -> 1) k
				where v.n > w.gone_at
				union all
				select (k.number - 1)::int, k.at, -1
				from outbox.destination t
				cross join lateral unnest(t.offsets) with ordinality k (at, number)
				where t.publisher = of_publisher and t.shard = of_shard and t.topic = w.topic
					and w.gone_at < 0
				union all
				-- a topic that was created again may have fewer partitions than known offsets
				select g.partition, -2, -2
				from generate_series(0, greatest((w.value ->> 0)::int - 1, (
					select max(k.partition::int) from unnest(w.ns, w.sayings) v (n, value)
					cross join lateral jsonb_object_keys(v.value -> 1) k (partition)
					where v.n > w.gone_at))) g (partition)
			) q
			order by q.partition, q.n desc) p) o
	where w.value <> 'null'
	on conflict (publisher, shard, topic) do update set partitions = excluded.partitions,
		offsets = excluded.offsets, open = excluded.open, n = excluded.n;
end
$$;

-- Transaction ids have a meaning only in the cluster that assigned them. A dump and logical replication
-- carry txid, ticks and acknowledged snapshots into another cluster as plain data; the system column
-- xmin names the transaction that inserted the row into this one. pg_upgrade, replication of the disk
-- and VACUUM FREEZE keep xmin. So if the newest log row has another cluster's system identifier and its
-- xmin is not its txid, it was carried here, and nothing may be read by it before a rebase
-- (0008_rebase.sql). All rows of a dump have one xmin, which may be the txid of one of them: so the rows
-- before the newest are checked as well, except those that a command wrote, perhaps in a savepoint. An
-- owner checks its own row whenever the server may have changed: with each page, and with the first tick
-- on a connection (tick_checked.sql).
--
-- Without pg_control_system() the identifier is a stored number, which a dump copies. Then only the xmin
-- tells, and a row that a command wrote tells nothing if it has the stored number.
create function outbox.log_was_carried(of_publisher text, of_shard int, of_n bigint,
	of_system_identifier bigint) returns boolean language plpgsql stable
	set search_path = pg_catalog, pg_temp as $$
declare
	here bigint := outbox.system_identifier();
begin
	return (of_system_identifier <> here or here < 0)
		and exists (select from outbox.log l
			where l.publisher = of_publisher and l.shard = of_shard and l.n between of_n - 2 and of_n
				and l.system_identifier = of_system_identifier
				and (l.nonce <> 0 or l.n = of_n and of_system_identifier <> here)
				and l.xmin <> l.txid::xid);
end
$$;
comment on function outbox.log_was_carried(text, int, bigint, bigint) is 'Returns whether the newest log row of a '
	'shard was copied from another database cluster.';

-- Rows of a transaction that has not begun yet were carried here as well, whatever the log says.
create function outbox.has_rows_of_the_future() returns boolean language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp as $$
begin
	return exists (select from outbox.message m
		where m.txid >= pg_snapshot_xmax(pg_current_snapshot())
			and m.txid is distinct from pg_current_xact_id_if_assigned());
end
$$;
comment on function outbox.has_rows_of_the_future() is 'Returns whether outbox.message contains rows of transactions '
	'that have not yet begun here: they were copied from another database cluster.';

-- Takes a shard whose lease has expired, or that this owner holds. outcome: 'taken', 'held' (wait_ms
-- says how long its lease still runs), 'absent' (no such publisher or shard, or another number of
-- shards), 'elsewhere' (its newest row, or rows of the message table, were carried here from another
-- cluster).
create function outbox.take(
	of_publisher text, of_shard int, of_shards int, new_nonce bigint, new_owner text, lease_ms bigint,
	fresh_epoch bigint, -- becomes the epoch if the server is not the one that wrote the newest row
	out outcome text, out n bigint, out epoch bigint, out first_tick bigint, out acked_id bigint,
	out windows int, out holder text, out wait_ms bigint,
	out former_epoch bigint, -- epoch of the newest row before
	out listed_tick bigint, out parked boolean, out scheduled boolean, out requests bigint,
	out identity uuid, -- the publisher's, for its positions and the names of its transactions in Kafka
	out deaths int, out alone_deaths int, out paused boolean, out paused_topics jsonb)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
	shards int;
	newest outbox.log;
	now_timeline int := outbox.timeline();
	now_system bigint := outbox.system_identifier();
begin
	if current_setting('synchronous_commit') not in ('on', 'remote_apply') then
		perform set_config('synchronous_commit', 'on', true);
	end if;
	-- the publisher after its log: a rebase that changes the identity meanwhile has inserted row n + 1
	select l.* into newest from outbox.log l
		where l.publisher = of_publisher and l.shard = of_shard order by l.n desc limit 1;
	select s.shards, s.requests, s.identity, s.paused_at is not null, s.paused_topics
		into shards, requests, identity, paused, paused_topics
		from outbox.publisher s where s.name = of_publisher;
	if shards is distinct from of_shards or newest.n is null or of_shard >= shards then
		outcome := 'absent';
		return;
	end if;
	if outbox.log_was_carried(of_publisher, of_shard, newest.n, newest.system_identifier) then
		outcome := 'elsewhere';
		return;
	end if;
	if newest.lease_until > clock_timestamp() and newest.owner <> new_owner then
		outcome := 'held';
		holder := newest.owner;
		wait_ms := ceil(extract(epoch from newest.lease_until - clock_timestamp()) * 1000);
		return;
	end if;
	if outbox.has_rows_of_the_future() then
		outcome := 'elsewhere';
		return;
	end if;
	outcome := 'taken';
	n := newest.n + 1;
	epoch := case when newest.timeline = now_timeline and newest.system_identifier = now_system
		then newest.epoch else fresh_epoch end;
	former_epoch := newest.epoch;
	first_tick := newest.first_tick;
	acked_id := newest.acked_id;
	windows := cardinality(newest.ticks) - 1;
	listed_tick := case when newest.listed_tick > first_tick then newest.listed_tick end;
	parked := exists (select from outbox.parked p
			where p.publisher = of_publisher and p.shard = of_shard and p.tick >= 0)
		or exists (select from outbox.parked_request r
			where r.publisher = of_publisher and r.shard = of_shard and r.ended_at is null);
	scheduled := newest.due is not null or exists (select from outbox.scheduled s
		where s.publisher = of_publisher and s.shard = of_shard and s.tick >= 0);
	deaths := coalesce(newest.deaths[1], 0);
	alone_deaths := coalesce(newest.deaths[2], 0);
	if newest.owner <> new_owner and newest.lease_until > newest.written_at then
		deaths := deaths + 1;
		alone_deaths := case when newest.deaths[3] = 1 then alone_deaths + 1 else 0 end;
	end if;
	insert into outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick, acked_id,
		ticks, listed_tick, listed_ids, due, destinations, folded, deaths, timeline, system_identifier)
	values (of_publisher, of_shard, n, epoch, new_nonce, new_owner,
		clock_timestamp() + lease_ms * interval '1 ms', first_tick, acked_id,
		newest.ticks, newest.listed_tick, newest.listed_ids, newest.due, '{}', n,
		case when deaths > 0 then array[deaths, alone_deaths, 0] end, now_timeline, now_system);
	-- the new owner finds all destinations in the table, and only there
	perform outbox.destinations_fold(of_publisher, of_shard, newest.folded, n);
end
$$;

-- The locks below must come before the snapshots that read.
create function outbox.require_read_committed() returns void language plpgsql stable as $$
begin
	if current_setting('transaction_isolation') <> 'read committed' then
		raise exception 'windows are read in READ COMMITTED transactions only'
			using errcode = 'invalid_transaction_state',
			hint = 'set default_transaction_isolation of the relay''s role to read committed';
	end if;
end
$$;

-- A row of the answer of outbox.tick. A type of its own, because PostgreSQL would build one of the function's
-- output columns again in each transaction.
create type outbox.tick_row as (verdict text, seen text, id bigint, created_at timestamptz, event_id uuid,
	topic text, key bytea, payload bytea, headers json, partition int, deliver_at timestamptz,
	key_bytes bytea, payload_bytes bytea, requests bigint, due_ms bigint, took_ms bigint, paused boolean,
	paused_topics json);

-- One step of an owner, in one statement and one round trip: searches for a window, and writes the next
-- log row if there is a window or if `must_write` (progress to note, a lease to renew). The answer
-- contains the rows of a small window; the caller must not publish them before the statement has
-- committed.
--
-- The last row of the answer is the verdict, without an id:
--   fenced     the row (n, nonce) is not the newest or not here: another owner has the shard
--   dropped    the publisher is gone or has another number of shards
--   idle       nothing found, nothing written
--   splitting  the same, and no window may be opened before the split or the pause is over
--   noted      the row n + 1 is written, no window opened
--   rows       n + 1 opened a window, its rows came in front, in the order of publication
--   pages      n + 1 opened a window too large for one answer: to be read by pages; rows that came
--              in front count for nothing
--   listed     n + 1 opened a listed window, its rows came in front; with max_rows 0 few rows,
--              to be read by pages
-- with the snapshot that was looked at, the publisher's number of requests and, when rows were kept back,
-- listed or gone, the milliseconds until one is due and those that this step took up to its commit, whether
-- the publisher is paused, and its paused topics. Other
-- rows come in front of the verdict's: with the verdict `empty`, as an id, a digest (outbox.parked_digest) that
-- no parked row has now; with the verdict `recovered` a topic and partition of outbox.parked_recover, with the id
-- up to which their rows are free, null: all are.
--
-- A window may be empty: a search opens one if it found no row of its own among many rows (of other
-- shards, or older than the publisher's start), or took long (rows of transactions in progress must be
-- read to be recognised), so that the next search begins behind these rows.
--
-- The tick is a snapshot taken before this transaction has an xid, and the transaction writes no
-- message. Rows are filtered by the tick and not by the newer snapshots of later statements here.
-- These statements lock every partition before they take their snapshot, as all statements of a volatile
-- function do, so that they see rows which upkeep moves between partitions in exactly one of them.
create function outbox.tick(
	of_publisher text, of_shard int, of_shards int, of_n bigint, of_nonce bigint,
	new_nonce bigint, lease_ms bigint,
	closed int,            -- number of open windows that are published to their end
	new_acked_id bigint,   -- progress in the window after them
	touched jsonb,         -- destinations that changed since the row before
	new_epoch bigint,      -- null: as before
	may_open boolean, must_write boolean, max_rows int, max_bytes bigint,
	last_seen text,        -- `seen` of the previous answer: if nothing changed since, there is no new row
	parks jsonb,           -- rows to keep back: outbox.park, outbox.schedule; null: none
	may_list boolean,      -- no listed window is open, and rows may be due
	batch int,             -- maximum number of parked rows to free, retry or skip; twice as many are listed
	new_deaths int[] default null, -- deaths of the log row
	blind boolean default false, -- any change opens a window that is read by pages; no row is read here
	fold_to bigint default null)   -- destinations' changes in the log rows from `folded` up to this are folded
	                               -- into their table; null: folds nothing
returns setof outbox.tick_row
language plpgsql volatile
-- planned once per session: the index on (txid, id, bucket) is right for all numbers
set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
	head record;
	message record;
	answer outbox.tick_row;
	ticks pg_snapshot[];
	before pg_snapshot;
	tick pg_snapshot;
	seen text;
	low xid8;
	high xid8;
	straggler xid8;
	far xid8[];
	bucket_from int;
	bucket_to int;
	rows int := 0;
	bytes bigint := 0;
	opens boolean := false;
	pages boolean := blind;
	-- of special ticks only
	first_tick bigint;
	listed_tick bigint;
	listed_ids bigint[];
	due bigint[];
	worked boolean;
	listed bigint[];
	last_due bigint[];
	gone bigint[];
	due_ms bigint;
	took_ms bigint;
begin
	-- Every expression, every plan node and every column of a node here slows down a tick, because
	-- PostgreSQL sets them up again in each transaction: so this query finds out as much as it can, and
	-- returns the log row as one value. The log and the publisher are seen in the snapshot that becomes
	-- the tick: a split that is not seen here begins after it. `special` is a tick with work that most
	-- ticks do not have.
	select l as own, s.split_to, s.requests, s.start_at, s.paused_topics, s.paused_at is not null as is_paused,
			case when s.split_to is null and s.paused_at is null then pg_current_snapshot()
				else s.drain_to end as tick,
			l.timeline = case when not pg_is_in_recovery() then
					('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int end
				and s.shards = of_shards
				and current_setting('transaction_isolation') = 'read committed' as is_ours,
			may_list or parks is not null or fold_to is not null or l.listed_tick is not null
				or l.due is not null
				or current_setting('synchronous_commit') not in ('on', 'remote_apply') as is_special
		into head
		from outbox.log l left join outbox.publisher s on s.name = l.publisher
		where l.publisher = of_publisher and l.shard = of_shard and l.n = of_n and l.nonce = of_nonce;
	if head.is_ours is not true then
		perform outbox.require_read_committed();
		answer.verdict := case when (head.own).timeline is distinct from outbox.timeline() then 'fenced'
			else 'dropped' end;
		return next answer;
		return;
	end if;

	ticks := (head.own).ticks;
	before := ticks[cardinality(ticks)];
	tick := head.tick;
	seen := tick::text; -- null in a pause, and in a split without its end: nothing is searched
	if head.is_special then
		first_tick := (head.own).first_tick;
		listed_tick := (head.own).listed_tick;
		listed_ids := (head.own).listed_ids;
		due := (head.own).due;
		-- rows of a published listed window must still leave their tables
		must_write := must_write or may_list and coalesce(listed_tick <= first_tick, false);
		if may_list and head.split_to is null and not head.is_paused and listed_tick is null then
			if outbox.parked_asked(of_publisher, of_shard, first_tick) then
				must_write := true; -- the log row's fence holds for them as well
				worked := true;
				answer.verdict := 'empty';
				for answer.id in
					select q from outbox.parked_requests(of_publisher, of_shard, first_tick, batch) q
				loop
					return next answer;
				end loop;
			end if;
			last_due := case when due[3] = head.requests then due else array[0] end;
			select n.due, n.ids into due, listed from outbox.listed_next(
				of_publisher, of_shard, first_tick, greatest(least(max_rows, 2 * batch), 1), max_bytes,
				head.requests, due) n;
			-- the search read so much that the next one must continue from there
			must_write := must_write or listed is null and (due[1] <> last_due[1]
				and due[1] < 9223372036854775807 or due[4:] <> last_due[4:]);
		end if;
		if listed is not null then
			opens := true;
			for answer in
				select null, null, r.*, null, null, null, null, null, null, null
				from outbox.listed_rows(of_publisher, listed) r where max_rows > 0
			loop
				return next answer;
			end loop;
			tick := before;
		end if;
	end if;

	-- the row must stay small: a snapshot lists every transaction in progress
	if not opens and may_open and seen <> before::text and seen is distinct from last_seen
		and (cardinality(ticks) <= 16 or pg_column_size(ticks) < 65536) then
		-- Transactions that were in progress at the tick before and are visible now: near ones only widen the
		-- range of xids, far ones are left to the pages. Usually this is the oldest one, or none.
		high := pg_snapshot_xmax(tick);
		low := case when pg_snapshot_xmin(before) = pg_snapshot_xmax(before)
			or pg_visible_in_snapshot(pg_snapshot_xmin(before), tick)
				and high::text::bigint
					- pg_snapshot_xmin(before)::text::bigint <= 10000
			then pg_snapshot_xmin(before) end;
		if low is null then
			low := pg_snapshot_xmax(before);
			for straggler in select x from pg_snapshot_xip(before) x
				where pg_visible_in_snapshot(x, tick) order by x
			loop
				if high::text::bigint - straggler::text::bigint > 10000 then
					far := far || straggler;
				else
					low := straggler;
					exit;
				end if;
			end loop;
			if far is not null and not pages then
				bucket_from := outbox.first_bucket(of_shard, of_shards);
				bucket_to := outbox.first_bucket(of_shard + 1, of_shards);
				perform from unnest(far) x (txid) cross join lateral (
					select from outbox.message m
					where m.txid = x.txid and m.bucket >= bucket_from and m.bucket < bucket_to
					order by m.txid, m.id limit 1) found_row
				limit 1;
				pages := found;
			end if;
		end if;

		-- Whole rows, so that no partition's scan has anything to compute; and no window function. The order
		-- by txid is that of its index: without it, the primary key, which holds the bucket as well, would seem
		-- as good for an empty partition, and the plan stays when there are rows.
		-- The second loop is for shards and for a publisher with a start time: each condition is set up for each
		-- partition of the table.
		if pages then
			null;
		elsif of_shards = 1 and head.start_at is null then
			for message in
				select r.* from (
					select m.id, m.created_at, m.event_id, m.topic, m.key, m.payload, m.headers, m.partition,
						m.deliver_at, m.key_bytes, m.payload_bytes
					from outbox.message m
					where m.txid >= low and m.txid < high
						and pg_visible_in_snapshot(m.txid, tick)
						and not pg_visible_in_snapshot(m.txid, before)
					order by m.txid, m.id limit max_rows + 1) r
				order by r.id
			loop
				rows := rows + 1;
				bytes := bytes + coalesce(octet_length(message.payload_bytes), octet_length(message.payload), 0)
					+ coalesce(octet_length(message.key_bytes), octet_length(message.key), 0)
					+ coalesce(octet_length(message.headers::text), 0);
				if rows > max_rows or bytes > max_bytes then
					pages := true;
					exit;
				end if;
				return next (null, null, message.id, message.created_at, message.event_id, message.topic,
					outbox.published_bytes(message.key, message.key_bytes),
					outbox.published_bytes(message.payload, message.payload_bytes), message.headers,
					message.partition, message.deliver_at, null, null, null, null, null, null, null)::outbox.tick_row;
			end loop;
		else
			bucket_from := outbox.first_bucket(of_shard, of_shards);
			bucket_to := outbox.first_bucket(of_shard + 1, of_shards);
			for message in
				select r.* from (
					select m.id, m.created_at, m.event_id, m.topic, m.key, m.payload, m.headers, m.partition,
						m.deliver_at, m.key_bytes, m.payload_bytes
					from outbox.message m
					where m.txid >= low and m.txid < high
						and pg_visible_in_snapshot(m.txid, tick)
						and not pg_visible_in_snapshot(m.txid, before)
						and (head.start_at is null or m.created_at >= head.start_at)
						and m.bucket >= bucket_from and m.bucket < bucket_to
					order by m.txid, m.id limit max_rows + 1) r
				order by r.id
			loop
				rows := rows + 1;
				bytes := bytes + coalesce(octet_length(message.payload_bytes), octet_length(message.payload), 0)
					+ coalesce(octet_length(message.key_bytes), octet_length(message.key), 0)
					+ coalesce(octet_length(message.headers::text), 0);
				if rows > max_rows or bytes > max_bytes then
					pages := true;
					exit;
				end if;
				return next (null, null, message.id, message.created_at, message.event_id, message.topic,
					outbox.published_bytes(message.key, message.key_bytes),
					outbox.published_bytes(message.payload, message.payload_bytes), message.headers,
					message.partition, message.deliver_at, null, null, null, null, null, null, null)::outbox.tick_row;
			end loop;
		end if;
		-- the last window of a split is written even when it is empty: all shards end at one tick
		opens := rows > 0 or pages or head.split_to is not null
			or clock_timestamp() - statement_timestamp() > interval '10 ms';
		if not opens and (of_shards > 1 or head.start_at is not null) then
			select count(*) > max_rows into opens from (
				select from outbox.message m
				where m.txid >= low and m.txid < high
				limit max_rows + 1) r;
		end if;
	end if;
	if not opens and not must_write then
		if may_list then
			due_ms := outbox.listed_wait(of_publisher, of_shard, first_tick, head.requests, due);
		end if;
		return next (case when head.split_to is null and not head.is_paused then 'idle' else 'splitting' end, seen,
			null, null, null, null, null, null, null, null, null, null, null, head.requests, due_ms, null,
			head.is_paused, head.paused_topics)::outbox.tick_row;
		return;
	end if;

	if head.is_special then
		perform set_config('synchronous_commit', 'on', true)
			where current_setting('synchronous_commit') not in ('on', 'remote_apply');
		answer := null;
		if parks is not null or listed_tick is not null then
			-- before the log row, which names this transaction, because these may wait for an operator
			if parks is not null then
				parks := outbox.park(of_publisher, of_shard, parks);
				due := outbox.schedule(of_publisher, of_shard, parks -> 'scheduled', due);
				answer.verdict := 'recovered';
				for answer.topic, answer.partition, answer.id in select r.* from outbox.parked_recover(
					of_publisher, of_shard, parks -> 'recovered', batch) r
				loop
					return next answer;
				end loop;
				-- a row that was refused again is not published with the window, nor are the rows behind it
				listed_ids := array(
					with noted as (
						select p.id, p.topic, p.key from outbox.parked p
						where p.publisher = of_publisher and p.id = any (array(
							select (r ->> 0)::bigint from jsonb_array_elements(parks -> 'rows') r))
					)
					select x from unnest(listed_ids) x
					where x not in (
						select n.id from noted n
						union all
						select p.id from outbox.parked p join noted n
							on n.topic = p.topic and n.key = p.key and n.id < p.id
						where p.publisher = of_publisher and p.id = any (listed_ids) and p.state = 'behind')
					order by x);
			end if;
			if listed_tick <= first_tick + closed + 1 then
				gone := array(select x from unnest(listed_ids) x
					where listed_tick <= first_tick + closed or x <= new_acked_id
					order by x limit 2 * batch);
				answer := null;
				answer.verdict := 'empty';
				for answer.id in select u from outbox.unpark(of_publisher, of_shard, gone, true) u loop
					return next answer;
				end loop;
				-- the other rows go with the next log rows; nothing is listed before, even if the window is closed
				listed_ids := array(select x from unnest(listed_ids) x
					where x > coalesce(gone[cardinality(gone)], 0) order by x);
				if listed_tick <= first_tick + closed and cardinality(listed_ids) = 0 then
					listed_tick := null;
				end if;
			end if;
			due_ms := case when listed_tick <= first_tick + closed then 0
				else outbox.listed_wait(of_publisher, of_shard, first_tick + closed, head.requests, due) end;
		elsif may_list then
			due_ms := case when listed is not null then 0
				else outbox.listed_wait(of_publisher, of_shard, first_tick + closed, head.requests, due) end;
		end if;
	end if;
	insert into outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick, acked_id,
		ticks, listed_tick, listed_ids, due, destinations, folded, deaths, timeline, system_identifier)
	values (of_publisher, of_shard, of_n + 1, coalesce(new_epoch, (head.own).epoch), new_nonce,
		(head.own).owner, clock_timestamp() + lease_ms * interval '1 ms',
		(head.own).first_tick + closed, new_acked_id,
		case when opens then ticks[closed + 1:] || tick else ticks[closed + 1:] end,
		case when listed is not null then first_tick + cardinality(ticks) else listed_tick end,
		case when listed is not null then listed when listed_tick is not null then listed_ids end,
		due, touched, coalesce(fold_to, (head.own).folded), new_deaths, (head.own).timeline,
		(head.own).system_identifier);

	if head.is_special then
		-- after the insert: an owner that lost the shard fails there, before it locks a destination
		if fold_to is not null then
			perform outbox.destinations_fold(of_publisher, of_shard, (head.own).folded, fold_to);
		end if;
		if worked or listed is not null or cardinality(gone) > 0 or parks is not null then
			took_ms := extract(epoch from clock_timestamp() - statement_timestamp()) * 1000;
		end if;
	end if;
	return next (case when not opens then 'noted' when listed is not null then 'listed'
		when pages then 'pages' else 'rows' end, seen, null, null, null, null, null,
		null, null, null, null, null, null, head.requests, due_ms, took_ms, head.is_paused,
		head.paused_topics)::outbox.tick_row;
end
$$;

-- Whether a shard at rest need not tick: in the snapshot `seen`, no row of the table has an id of `from_xid` or later, and
-- `version` is another one if the publisher's row has changed. All three are null if from_xid is null, and while
-- somebody has locked a table: a renewal looks as well, and must not wait.
create function outbox.look(of_publisher text, from_xid xid8, out seen text, out version text, out has_rows boolean)
language plpgsql volatile
-- as for outbox.tick
set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off set lock_timeout = '100ms'
set search_path = pg_catalog, pg_temp as $$
begin
	if from_xid is null then
		return;
	end if;
	select pg_current_snapshot()::text, (select s.xmin::text from outbox.publisher s where s.name = of_publisher),
			exists (select from outbox.message m where m.txid >= from_xid)
		into seen, version, has_rows;
exception when lock_not_available then
	return;
end
$$;

-- Renews the lease: the row n + 1 copies the row n except for the lease and the deaths. It reads and
-- writes only outbox.log, so that no other table, however locked, large or slow, can cost an owner its
-- lease. The fence is that of outbox.tick. Returns 'fenced' or 'noted'.
create function outbox.renew(of_publisher text, of_shard int, of_n bigint, of_nonce bigint, new_nonce bigint,
	lease_ms bigint, new_deaths int[]) returns text
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
	if current_setting('synchronous_commit') not in ('on', 'remote_apply') then
		perform set_config('synchronous_commit', 'on', true);
	end if;
	insert into outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick, acked_id,
		ticks, listed_tick, listed_ids, due, destinations, folded, deaths, timeline, system_identifier)
	select l.publisher, l.shard, l.n + 1, l.epoch, new_nonce, l.owner,
		clock_timestamp() + lease_ms * interval '1 ms', l.first_tick, l.acked_id, l.ticks,
		l.listed_tick, l.listed_ids, l.due, '{}', l.folded, new_deaths, l.timeline, l.system_identifier
	from outbox.log l
	where l.publisher = of_publisher and l.shard = of_shard and l.n = of_n and l.nonce = of_nonce
		and l.xmin = l.txid::xid and l.timeline = outbox.timeline();
	return case when found then 'noted' else 'fenced' end;
end
$$;

create function outbox.xid_after(x xid8, distance bigint) returns xid8
language plpgsql immutable as $$
begin
	return (x::text::bigint + distance)::text::xid8;
end
$$;

-- The bounds for the pages of an open window, from its log row, of the rows of this shard. low_id and high_id enclose the ids of the
-- main range of xids; stragglers are the xids that were in progress at the tick before and are visible in
-- this one, and least_id and last_id enclose the ids of their rows. Any lower low_id or higher high_id
-- would be right as well.
--
-- One call reads that many xids and about that many rows. It begins at from_xid (null: at the first, and
-- with the stragglers), and the next call begins at next_xid, unless this one returns `over`. The rows of a
-- transaction are in the order of their ids, so of the transaction at the end of a step only the last row is
-- read, not those between: a window of large transactions costs no more than one of small ones. For a single
-- xid the first and the last row suffice. Transactions that are open in the tick, or aborted, have rows that no
-- scan returns, and may have any number of them: they are left out.
create function outbox.window_bounds(
	of_publisher text, of_shard int, of_shards int, of_n bigint, of_nonce bigint, of_tick bigint,
	from_xid xid8, xids bigint, max_rows bigint,
	out low_xid xid8, out sure_xid xid8, out upto pg_snapshot, out stragglers text,
	out low_id bigint, out high_id bigint,
	out listed text, -- the ids of a listed window; null: the window is not listed, and the bounds above are valid
	out next_xid xid8, out over boolean, out least_id bigint, out last_id bigint)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set search_path = pg_catalog, pg_temp as $$
declare
	before pg_snapshot;
	late xid8[] := '{}';
	bound xid8;
	gap xid8;
	first_of bigint;
	last_of bigint;
	counted bigint := 0;
	found_rows bigint;
	bucket_from int := outbox.first_bucket(of_shard, of_shards);
	bucket_to int := outbox.first_bucket(of_shard + 1, of_shards);
	-- rows of this shard; a step then reads the index entries of about 1000 rows of all shards
	step constant int := 1000 / least(of_shards, 16);
	step_xid xid8;
begin
	perform outbox.window_guard(of_publisher, of_shard, of_n, of_nonce);
	select l.ticks[of_tick - l.first_tick], l.ticks[of_tick - l.first_tick + 1],
			case when l.listed_tick = of_tick then l.listed_ids::text end
		into before, upto, listed
		from outbox.log l where l.publisher = of_publisher and l.shard = of_shard and l.n = of_n;
	low_xid := pg_snapshot_xmax(before);
	sure_xid := pg_snapshot_xmin(upto);
	over := listed is not null;
	if over then
		return;
	end if;

	if from_xid is null then
		for gap in select x from pg_snapshot_xip(before) x where pg_visible_in_snapshot(x, upto)
				and pg_xact_status(x) is distinct from 'aborted' loop
			select m.id into first_of from outbox.message m
				where m.txid = gap and m.bucket >= bucket_from and m.bucket < bucket_to
				order by m.txid, m.id limit 1;
			continue when not found;
			select m.id into last_of from outbox.message m
				where m.txid = gap and m.bucket >= bucket_from and m.bucket < bucket_to
				order by m.txid desc, m.id desc limit 1;
			late := late || gap;
			least_id := least(least_id, first_of);
			last_id := greatest(last_id, last_of);
		end loop;
		stragglers := late::text;
	end if;

	next_xid := coalesce(from_xid, low_xid);
	bound := least(outbox.xid_after(next_xid, xids), pg_snapshot_xmax(upto));
	<<chunk>>
	for gap in select x from pg_snapshot_xip(upto) x where x >= next_xid and x < bound
			union all select bound order by 1 loop
		if next_xid < gap and xids = 1 then
			if pg_xact_status(next_xid) is distinct from 'aborted' then
				select m.id into low_id from outbox.message m
					where m.txid = next_xid and m.bucket >= bucket_from and m.bucket < bucket_to
					order by m.txid, m.id limit 1;
				select m.id into high_id from outbox.message m
					where m.txid = next_xid and m.bucket >= bucket_from and m.bucket < bucket_to
					order by m.txid desc, m.id desc limit 1;
			end if;
			next_xid := gap;
		end if;
		while next_xid < gap loop
			exit chunk when counted >= max_rows;
			select count(*), min(r.id), max(r.id), (array_agg(r.txid))[step]
				into found_rows, first_of, last_of, step_xid from (
				select m.txid, m.id from outbox.message m
				where m.txid >= next_xid and m.txid < gap and m.bucket >= bucket_from and m.bucket < bucket_to
				order by m.txid, m.id limit step) r;
			counted := counted + found_rows;
			low_id := least(low_id, first_of);
			high_id := greatest(high_id, last_of);
			exit when step_xid is null;
			select m.id into last_of from outbox.message m
				where m.txid = step_xid and m.bucket >= bucket_from and m.bucket < bucket_to
				order by m.txid desc, m.id desc limit 1;
			high_id := greatest(high_id, last_of);
			next_xid := outbox.xid_after(step_xid, 1);
		end loop;
		next_xid := case when gap < bound then outbox.xid_after(gap, 1) else bound end;
	end loop;
	over := next_xid >= pg_snapshot_xmax(upto);
	if low_id < 1 then
		raise exception 'the message table has a row with id %, and ids begin at 1', low_id;
	end if;
end
$$;

-- Fails unless the owner's log row is here: a server without it is a standby, an old primary or a restored
-- copy, and must not be read.
create function outbox.log_guard(of_publisher text, of_shard int, of_n bigint, of_nonce bigint) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
	perform from outbox.log l
		where l.publisher = of_publisher and l.shard = of_shard and l.n = of_n and l.nonce = of_nonce
			and l.xmin = l.txid::xid;
	if not found then
		raise exception 'log row % of publisher % shard % is not on this server', of_n, of_publisher, of_shard
			using errcode = 'OR001',
			hint = 'this server is not the one that the relay writes its log to';
	end if;
end
$$;

-- The same for a page of a window. Takes the lock that must come before the page's snapshot.
create function outbox.window_guard(of_publisher text, of_shard int, of_n bigint, of_nonce bigint)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
	perform outbox.require_read_committed();
	perform outbox.timeline();
	perform outbox.log_guard(of_publisher, of_shard, of_n, of_nonce);
	lock table outbox.message in access share mode;
end
$$;

-- 0 to shards - 1. Not generate_series: a planner that expects a thousand shards of each publisher
-- treats the view below as a large query, and its compilation (jit) takes longer than a lease where CPU
-- is short.
create function outbox.shard_numbers(shards int) returns setof int
language plpgsql immutable parallel safe rows 2 as $$
begin
	return query select pg_catalog.generate_series(0, shards operator(pg_catalog.-) 1);
end
$$;
comment on function outbox.shard_numbers(int) is 'Returns the numbers from 0 to shards - 1.';

-- The newest log row of each shard. written_elsewhere: it was carried here from another cluster.
create view outbox.progress as
	select s.name as publisher, g.shard, s.shards, l.n, l.nonce, l.epoch, l.owner, l.lease_until,
		l.first_tick, l.acked_id, l.ticks, l.written_at, l.txid, l.timeline, l.system_identifier,
		s.split_to, s.paused_at, s.paused_topics, s.start, s.start_at, l.folded, l.listed_tick, l.listed_ids,
		outbox.log_was_carried(s.name, g.shard, l.n, l.system_identifier) as written_elsewhere
	from outbox.publisher s
	cross join lateral outbox.shard_numbers(s.shards) g (shard)
	left join lateral (
		select * from outbox.log l where l.publisher = s.name and l.shard = g.shard
		order by l.n desc limit 1) l on true;

comment on view outbox.progress is 'The newest log row of each shard of each publisher.';
comment on column outbox.progress.publisher is 'Name of the publisher.';
comment on column outbox.progress.shard is 'Number of the shard.';
comment on column outbox.progress.shards is 'Number of shards of the publisher.';
comment on column outbox.progress.n is 'See outbox.log.';
comment on column outbox.progress.nonce is 'See outbox.log.';
comment on column outbox.progress.epoch is 'See outbox.log.';
comment on column outbox.progress.owner is 'Process that owns the shard.';
comment on column outbox.progress.lease_until is 'End of the owner''s lease.';
comment on column outbox.progress.first_tick is 'See outbox.log.';
comment on column outbox.progress.acked_id is 'See outbox.log.';
comment on column outbox.progress.ticks is 'See outbox.log.';
comment on column outbox.progress.written_at is 'Time at which the row was written.';
comment on column outbox.progress.txid is 'See outbox.log.';
comment on column outbox.progress.timeline is 'See outbox.log.';
comment on column outbox.progress.system_identifier is 'See outbox.log.';
comment on column outbox.progress.split_to is 'See outbox.publisher.';
comment on column outbox.progress.paused_at is 'See outbox.publisher.';
comment on column outbox.progress.paused_topics is 'See outbox.publisher.';
comment on column outbox.progress.start is 'See outbox.publisher.';
comment on column outbox.progress.start_at is 'See outbox.publisher.';
comment on column outbox.progress.folded is 'See outbox.log.';
comment on column outbox.progress.listed_tick is 'See outbox.log.';
comment on column outbox.progress.listed_ids is 'See outbox.log.';
comment on column outbox.progress.written_elsewhere is 'true: the row was copied from another database cluster, and '
	'the shard is not published before `outbox-relay publisher rebase`.';

-- Some managed servers refuse pg_current_wal_lsn(), pg_walfile_name() or pg_control_system(). Which evidence of
-- another server is used is decided here once, not at each tick: this function writes outbox.timeline(),
-- outbox.tick() and outbox.system_identifier() anew where they do not fit the server. `migrate up` calls it each
-- time, and a rebase calls it with `renews`, because the stored number was copied from another cluster.
--
--   instead of the timeline           a negative hash of the time at which the server started: a standby that was
--                                     promoted, a restored copy and a restarted server have another one
--   instead of the system identifier  a random negative number
create function outbox.choose_evidence(renews boolean) returns void language plpgsql volatile
	set search_path = pg_catalog, pg_temp as $$
declare
	by_wal text := $e$('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int$e$;
	by_start text := $e$hashint8((extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint) | (1 << 31)$e$;
	timeline_by_wal text := $e$('x' operator(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(
		pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int$e$;
	timeline_by_start text := $e$pg_catalog.hashint8((extract(epoch from pg_catalog.pg_postmaster_start_time())
		operator(pg_catalog.*) 1000000)::bigint) operator(pg_catalog.|) (1 operator(pg_catalog.<<) 31)$e$;
	by_control text := '(select c.system_identifier from pg_catalog.pg_control_system() c)';
	tick text := pg_get_functiondef('outbox.tick'::regproc);
	timeline text := pg_get_functiondef('outbox.timeline'::regproc);
	identifier text := pg_get_functiondef('outbox.system_identifier'::regproc);
	has_wal boolean;
	has_control boolean;
begin
	-- The relay and readers call these functions with their own privileges.
	select coalesce(bool_and(has_function_privilege(r.oid, 'pg_current_wal_lsn()', 'execute')
				and has_function_privilege(r.oid, 'pg_walfile_name(pg_lsn)', 'execute')), true),
			coalesce(bool_and(has_function_privilege(r.oid, 'pg_control_system()', 'execute')), true)
		into has_wal, has_control
		from pg_roles r where r.rolname in ('outbox_relay', 'outbox_reader');
	begin
		perform pg_walfile_name(pg_current_wal_lsn());
	exception when others then
		has_wal := false;
	end;
	begin
		perform from pg_control_system();
	exception when others then
		has_control := false;
	end;

	if has_wal <> (strpos(tick, by_wal) > 0) then
		execute replace(tick, case when has_wal then by_start else by_wal end,
			case when has_wal then by_wal else by_start end);
	end if;
	if has_wal <> (strpos(timeline, timeline_by_wal) > 0) then
		execute replace(timeline, case when has_wal then timeline_by_start else timeline_by_wal end,
			case when has_wal then timeline_by_wal else timeline_by_start end);
	end if;
	if has_control <> (strpos(identifier, by_control) > 0) or renews and not has_control then
		execute replace(identifier, substring(identifier from 'return ([^;]+);'), case when has_control then by_control
			else (('x' || translate(gen_random_uuid()::text, '-', ''))::bit(64)::bigint | (1::bigint << 63))::text end);
	end if;
end
$$;
comment on function outbox.choose_evidence(boolean) is 'Writes the functions that recognise another server anew if '
	'they call functions that this server refuses, or avoid functions that it has.';
select outbox.choose_evidence(false);
