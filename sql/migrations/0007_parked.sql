-- oldest-program: 0.1.0
--
-- Messages that Kafka refuses for good, and messages of the same topic and key behind them. A row is a
-- full copy: the message's own partition may go. Rows come and go in the transaction of the log row that
-- notes it (outbox.tick), so only a shard's owner changes them; operators record requests.
--
-- The rows of one topic and key are a queue in the order of ids. Its head is the one that was refused:
--   waiting  tried again, alone, at next_at
--   dead     tried max_attempts times, or it kills the relay: only an operator moves it
--   stalled  its partition acknowledged nothing, or its topic was missing: free once it is there again
--   paused   an operator paused its topic: free once the topic is resumed
--   free     has no known obstacle: it is published as soon as possible, with those behind it
--   behind   not the head
-- A row without a key has no order: it is the head of a queue of its own.
--
-- A row is listed, or skipped, only when the window it came from is published to its end. Before that, an
-- owner that takes over reads that window again and parks the row once more, which changes nothing while
-- the row is here.

-- The queue that a topic and a key name: the first 64 bits of a SHA-256. An index on the key itself would
-- refuse a long one. Queries compare the topic and the key after the digest, so that two queues of one digest
-- cost time and nothing else.
create function outbox.parked_digest(topic text, key bytea) returns bigint
language plpgsql immutable strict parallel safe as $$
begin
	return ('x' operator(pg_catalog.||) pg_catalog.encode(pg_catalog.substr(pg_catalog.sha256(
		pg_catalog.convert_to(topic, 'UTF8') operator(pg_catalog.||) pg_catalog.decode('00', 'hex')
		operator(pg_catalog.||) key), 1, 8), 'hex'))::bit(64)::bigint;
end
$$;
comment on function outbox.parked_digest(text, bytea) is
	'The first 64 bits of the SHA-256 of the topic, a zero byte and the key; null without a key.';

create table outbox.parked (
	publisher       text collate "C" not null,
	shard      int         not null,
	id         bigint      not null, -- the message's, as are the next seven
	created_at timestamptz not null,
	event_id   uuid        not null,
	topic      text collate "C" not null,
	key        bytea,
	payload    bytea,
	headers    json,
	partition  int,
	tick       bigint      not null, -- the window of the row
	state      text        not null
		constraint state_of_a_parked_row check (state in
			('waiting', 'dead', 'stalled', 'paused', 'free', 'behind')),
	error      text,                 -- why Kafka refused it; null: it never did
	stalled    int,                  -- the stalled partition; -1: the topic was missing; -2: it was paused
	attempts   int         not null, -- refusals
	next_at    timestamptz not null,
	parked_at  timestamptz not null default clock_timestamp(),
	request_id bigint,               -- in outbox.audit: the retry that reset its attempts
	txid       xid8        not null default pg_current_xact_id(), -- transaction that parked it
	changed    xid8        not null default pg_current_xact_id(), -- newest one that changed error and attempts
	was_id     bigint,               -- id of the message, if the row got another one (outbox.kept_rows)
	digest     bigint generated always as (outbox.parked_digest(topic, key)) stored,
	primary key (id, publisher)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- A session plans a query once, perhaps while the table is empty. On an empty table, a plan that reads all rows of
-- a publisher seems as cheap as a plan that finds a few rows. So each query has only one index that can serve it.
--
-- The primary key serves queries that name ids. Its first column is the id: only then does PostgreSQL always search
-- the index for each id of `id = any (...)`. Behind another column, it may read all rows of the publisher and compare each
-- id with the list. Queries use such a list and not a join, because a join may read all rows as well.
--
-- Each other index has a condition. A query that does not imply the condition cannot use the index. `tick >= 0` is
-- true for every row: a query states it if it may read many rows of a publisher.
create index parked_ids on outbox.parked (publisher, id) where tick >= 0;
create index parked_queue on outbox.parked (publisher, shard, digest, id) where digest is not null;
create index parked_due on outbox.parked (publisher, shard, next_at, id)
	where state in ('waiting', 'free') and shard is not null;
create index parked_stalled on outbox.parked (publisher, shard, topic, stalled, state, id)
	where stalled is not null;
create index parked_was on outbox.parked (was_id, publisher) where was_id is not null;

comment on table outbox.parked is 'Messages that Kafka refused, and later messages of their keys. Each row is a full '
	'copy of its message. Operators use `outbox-relay parked`.';
comment on column outbox.parked.publisher is 'Name of the publisher.';
comment on column outbox.parked.shard is 'Number of the shard.';
comment on column outbox.parked.id is 'Id of the message, or a new one if that id was taken (see was_id).';
comment on column outbox.parked.created_at is 'As in outbox.message.';
comment on column outbox.parked.event_id is 'As in outbox.message.';
comment on column outbox.parked.topic is 'As in outbox.message.';
comment on column outbox.parked.key is 'Published bytes of the key.';
comment on column outbox.parked.payload is 'Published bytes of the payload.';
comment on column outbox.parked.headers is 'As in outbox.message.';
comment on column outbox.parked.partition is 'As in outbox.message.';
comment on column outbox.parked.tick is 'Number of the window that the message came from.';
comment on column outbox.parked.state is 'waiting: it is retried at next_at. dead: only an operator moves it. '
	'stalled: its partition acknowledges nothing, or its topic is missing. paused: an operator paused its topic. '
	'free: it is published as soon as possible. behind: it waits behind another message of its key.';
comment on column outbox.parked.error is 'Kafka''s error. null: Kafka never refused this message.';
comment on column outbox.parked.stalled is 'Partition that acknowledges nothing. -1: the topic was missing. -2: the topic '
	'was paused.';
comment on column outbox.parked.attempts is 'Number of times that Kafka refused it. A retry request resets it to 0.';
comment on column outbox.parked.next_at is 'Time of the next attempt.';
comment on column outbox.parked.parked_at is 'Time at which it was parked.';
comment on column outbox.parked.request_id is 'Id in outbox.audit of the retry that reset its attempts.';
comment on column outbox.parked.txid is 'Id of the transaction that parked it.';
comment on column outbox.parked.changed is 'Id of the newest transaction that changed its error and attempts.';
comment on column outbox.parked.was_id is 'Original id of the message, if the row got another one.';
comment on column outbox.parked.digest is 'Identifies the queue of its topic and key; computed by '
	'outbox.parked_digest.';

-- The actions of operators, and their reasons.
create table outbox.audit (
	id      bigint      generated always as identity (cache 1) primary key,
	at      timestamptz not null default clock_timestamp(),
	who     text        not null default session_user,
	caller  text, -- the session names it, so it is as trustworthy as the session's user
	verb    text        not null,
	publisher    text collate "C",
	target  jsonb       not null, -- object of the action
	reason  text        not null constraint audit_has_a_reason check (reason <> '')
);

comment on table outbox.audit is 'Actions of operators, with their reasons.';
comment on column outbox.audit.id is 'Number of the action.';
comment on column outbox.audit.at is 'Time of the action.';
comment on column outbox.audit.who is 'Database user.';
comment on column outbox.audit.caller is 'Caller of the HTTP interface for whom the database user acted. null: '
	'there was none.';
comment on column outbox.audit.verb is 'Action, for example "retry", "replay" or "lookback commit".';
comment on column outbox.audit.publisher is 'Publisher, if the action concerns one.';
comment on column outbox.audit.target is 'Object of the action, as JSON.';
comment on column outbox.audit.reason is 'Reason that the user gave.';

-- A request changes this number of the publisher, which the owner reads with every search.
alter table outbox.publisher add requests bigint not null default 0;
comment on column outbox.publisher.requests is 'Counter of operators'' requests. A change makes the owners of the '
	'shards look for new requests.';

-- Requests of operators, a row for each shard that the publisher had. The shard's owner works through the filter in
-- batches, in the order of ids, each in the transaction of a log row. So making a request takes no longer than storing
-- it, and no batch outlives a lease, however many rows match. Rows that are parked after the request do not match.
create table outbox.parked_request (
	id           bigint      not null, -- in outbox.audit
	publisher         text collate "C" not null,
	shard        int         not null,
	verb         text        not null constraint request_is_retry_or_skip check (verb in ('retry', 'skip')),
	filter       jsonb       not null, -- outbox.parked_is
	asked        pg_snapshot not null default pg_current_snapshot(), -- only rows that are visible in it match
	asked_at     timestamptz not null default clock_timestamp(),
	-- the snapshot in which a preview showed the rows: rows that changed since are left alone; null: no preview
	seen         pg_snapshot,
	total        bigint,               -- rows that the request addressed; null: they were not counted
	is_exact     boolean     not null default true, -- false: further rows were not counted
	about        bigint      not null, -- rows of the publisher at that time, an estimate if they are many
	last_id      bigint      not null default 0, -- rows up to this id were examined
	-- Rows of a window that is not published to its end cannot be skipped yet: the lowest id and tick of
	-- those that this pass left out; and the tick that the next pass waits for.
	left_id      bigint,
	left_tick    bigint,
	waits_for    bigint,
	looked       bigint      not null default 0,
	done         bigint      not null default 0, -- rows retried or skipped
	published    bigint      not null default 0, -- number of retried rows that were published
	refused      bigint      not null default 0, -- number of retried rows that were refused at the first attempt
	refused_id   bigint,
	error        text,
	changed      bigint      not null default 0, -- rows that changed since the preview, and the last one's id
	changed_id   bigint      not null default 0,
	begun_at     timestamptz not null default clock_timestamp(), -- or resumed; and rows done by that time
	begun_done   bigint      not null default 0,
	noted_at     timestamptz not null default clock_timestamp(),
	ended_at     timestamptz,
	is_cancelled boolean     not null default false,
	primary key (publisher, shard, id)
);

create index parked_request_open on outbox.parked_request (publisher, shard, id) where ended_at is null;
create index parked_request_ids on outbox.parked_request (id, shard);
create index parked_request_newest on outbox.parked_request (asked_at) where shard = 0; -- every request has it

comment on table outbox.parked_request is 'Retries and skips of parked messages that operators requested, with their '
	'progress. There is one row for each shard.';
comment on column outbox.parked_request.id is 'Id in outbox.audit.';
comment on column outbox.parked_request.publisher is 'Name of the publisher.';
comment on column outbox.parked_request.shard is 'Number of the shard.';
comment on column outbox.parked_request.verb is 'retry or skip.';
comment on column outbox.parked_request.filter is 'Which parked messages, as JSON (outbox.parked_is).';
comment on column outbox.parked_request.asked is 'Only messages that are visible in this snapshot match.';
comment on column outbox.parked_request.asked_at is 'Time of the request.';
comment on column outbox.parked_request.seen is 'Snapshot in which a preview showed the messages. Messages that changed '
	'since then are left alone. null: there was no preview.';
comment on column outbox.parked_request.total is 'Number of messages that the request addressed.';
comment on column outbox.parked_request.is_exact is 'false: further messages were not counted.';
comment on column outbox.parked_request.about is 'Number of parked messages of the publisher at that time; an '
	'estimate if there are many.';
comment on column outbox.parked_request.last_id is 'Messages up to this id were examined.';
comment on column outbox.parked_request.left_id is 'Lowest id that this pass left out, because its window was not '
	'yet published to the end.';
comment on column outbox.parked_request.left_tick is 'Lowest window that this pass left out.';
comment on column outbox.parked_request.waits_for is 'Window that must be published to the end before the next pass.';
comment on column outbox.parked_request.looked is 'Number of messages examined.';
comment on column outbox.parked_request.done is 'Number of messages retried or skipped.';
comment on column outbox.parked_request.published is 'Number of retried messages that were published.';
comment on column outbox.parked_request.refused is 'Number of retried messages that Kafka refused at the first '
	'attempt.';
comment on column outbox.parked_request.refused_id is 'Id of one of them.';
comment on column outbox.parked_request.error is 'Kafka''s error for that message.';
comment on column outbox.parked_request.changed is 'Number of messages that were left alone because they changed since '
	'the preview.';
comment on column outbox.parked_request.changed_id is 'Largest id of them.';
comment on column outbox.parked_request.begun_at is 'Time at which the request was made, or resumed.';
comment on column outbox.parked_request.begun_done is 'Number of messages retried or skipped by that time.';
comment on column outbox.parked_request.noted_at is 'Time of the last progress.';
comment on column outbox.parked_request.ended_at is 'Time at which the request was completed or cancelled. null: it is '
	'open.';
comment on column outbox.parked_request.is_cancelled is 'Whether an operator cancelled the request.';

create function outbox.largest(ids bigint[]) returns bigint language plpgsql immutable parallel safe as $$
begin
	return (select pg_catalog.max(x) from pg_catalog.unnest(ids) x);
end
$$;

-- The messages that a skip removed, a row for each batch. `outbox-relay verify` tells them from lost ones.
create table outbox.skipped (
	publisher       text collate "C" not null,
	request_id bigint           not null, -- in outbox.audit
	ids        bigint[]         not null,
	last_id    bigint generated always as (outbox.largest(ids)) stored
);

create index on outbox.skipped (publisher);
create index on outbox.skipped (last_id);
-- Was this message skipped? Requests overlap, so that neither end of a batch tells.
create index on outbox.skipped using gin (ids);

comment on table outbox.skipped is 'Ids of the messages that operators had skipped, so that `outbox-relay verify` '
	'does not report them as lost.';
comment on column outbox.skipped.publisher is 'Name of the publisher.';
comment on column outbox.skipped.request_id is 'Id in outbox.audit.';
comment on column outbox.skipped.ids is 'Ids of the messages.';
comment on column outbox.skipped.last_id is 'Largest of the ids.';

-- A queue, the rows of a topic and key, goes by id, as a listed window does and as its rows were written. One
-- that waited for its deliver_at may come to it in front of others.
--
-- Frees the first row of each of these queues that has no head, with the rows behind it.
create function outbox.parked_free(of_publisher text, of_shard int, topics text[], keys bytea[]) returns void
language sql volatile as $$
	update outbox.parked p set state = 'free', next_at = clock_timestamp()
	where p.publisher = of_publisher and p.id = any (array(
		select first.id from unnest(topics, keys) k (topic, key) cross join lateral (
			select q.id, q.state from outbox.parked q
			where q.publisher = of_publisher and q.shard = of_shard
				and q.digest = outbox.parked_digest(k.topic, k.key)
				and q.topic = k.topic and q.key = k.key
			order by q.id limit 1) first
		where first.state = 'behind'))
$$;

-- Messages that were kept under other ids than their own, and so have these other ids in their positions
-- in Kafka.
create table outbox.renumbered (
	publisher       text collate "C" not null,
	id         bigint      not null, -- under which it is kept
	was_id     bigint      not null, -- the message's, as are the next two
	created_at timestamptz not null,
	event_id   uuid        not null,
	primary key (id, publisher)
);

create index on outbox.renumbered (was_id, publisher);

comment on table outbox.renumbered is 'Messages that were parked or scheduled with another id than their own, '
	'because that id was taken. `outbox-relay verify` needs it.';
comment on column outbox.renumbered.publisher is 'Name of the publisher.';
comment on column outbox.renumbered.id is 'Id with which the message is kept and published.';
comment on column outbox.renumbered.was_id is 'Original id of the message.';
comment on column outbox.renumbered.created_at is 'As in outbox.message.';
comment on column outbox.renumbered.event_id is 'As in outbox.message.';

-- The ids of kept rows, parked and scheduled ones together, are unique: listed windows name rows by them. The ids of
-- messages are unique only while their sequence rises. After a restore, TRUNCATE ... RESTART IDENTITY, or setval, a
-- message may have the id of another one that is kept.
--
-- Returns rows to be kept, with ids that are free: each row as [id, created at, ...], like the argument. A row that is kept
-- already has the id under which it is kept. It is the same row if its event id is the same, or if its message is
-- gone. A row whose id belongs to another one gets an id beyond all others, so that it comes behind the kept rows of
-- its key. So do later rows of that key with smaller ids. A seventh value of such a row is the id of its message.
-- Called only when ids meet.
create function outbox.kept_rows(of_publisher text, of_shard int, rows jsonb) returns jsonb
language plpgsql volatile as $$
declare
	result jsonb := '[]';
	r jsonb;
	of_id bigint;
	new_id bigint;
	of_created_at timestamptz;
	of_event uuid;
	used bigint[] := '{}';
	last_id bigint;
	of_digest bigint;
	moved bigint[] := '{}'; -- digests of rows that got other ids
begin
	for r in select e from jsonb_array_elements(rows) e loop
		of_id := r ->> 0;
		of_created_at := timestamptz 'epoch' + (r ->> 1)::bigint * interval '1 us';
		select m.event_id, outbox.parked_digest(m.topic, outbox.published_bytes(m.key, m.key_bytes))
			into of_event, of_digest
			from outbox.message m where m.id = of_id and m.created_at = of_created_at;
		new_id := coalesce(
			(select p.id from outbox.parked p where p.publisher = of_publisher and p.id = of_id
				and (p.event_id = of_event or p.created_at = of_created_at or of_event is null)),
			(select s.id from outbox.scheduled s where s.publisher = of_publisher and s.id = of_id
				and (s.event_id = of_event or s.created_at = of_created_at or of_event is null)),
			(select p.id from outbox.parked p where p.publisher = of_publisher and p.was_id = of_id
				and p.was_id is not null and p.event_id = of_event limit 1),
			(select s.id from outbox.scheduled s where s.publisher = of_publisher and s.was_id = of_id
				and s.was_id is not null and s.event_id = of_event limit 1));
		if new_id is null and (of_id = any (used)
			or exists (select from outbox.parked p where p.publisher = of_publisher and p.id = of_id)
			or exists (select from outbox.scheduled s where s.publisher = of_publisher and s.id = of_id)
			or of_digest = any (moved)
			or exists (select from outbox.parked p where p.publisher = of_publisher and p.shard = of_shard
				and p.digest = of_digest and p.id > of_id and p.was_id is not null))
		then
			moved := moved || of_digest;
			last_id := 1 + coalesce(last_id, greatest(
				(select max(m.id) from outbox.message m), (select max(p.id) from outbox.parked p),
				(select max(s.id) from outbox.scheduled s),
				(select max((e ->> 0)::bigint) from jsonb_array_elements(rows) e)));
			new_id := last_id;
			insert into outbox.renumbered (publisher, id, was_id, created_at, event_id)
			select of_publisher, new_id, of_id, of_created_at, of_event where of_event is not null
			on conflict do nothing;
		end if;
		new_id := coalesce(new_id, of_id);
		used := used || new_id;
		result := result || jsonb_build_array(case when new_id = of_id then r else jsonb_build_array(
			new_id, r -> 1, r -> 2, r -> 3, r -> 4, r -> 5, of_id) end);
	end loop;
	return result;
end
$$;

-- May rows have ids of other rows that are kept, or come behind one that got another id? by_id: the rows, by id.
create function outbox.kept_ids_meet(of_publisher text, of_shard int, ids bigint[], by_id jsonb) returns boolean
language plpgsql volatile as $$
declare
	digests bigint[];
begin
	if exists (select from outbox.parked p where p.publisher = of_publisher and p.was_id is not null) then
		digests := array(select outbox.parked_digest(m.topic, outbox.published_bytes(m.key, m.key_bytes))
			from outbox.message m where m.id = any (ids));
		if exists (select from outbox.parked p where p.publisher = of_publisher and p.shard = of_shard
				and p.digest = any (digests) and p.was_id is not null) then
			return true;
		end if;
	end if;
	return exists (select from outbox.parked p where p.publisher = of_publisher and p.id = any (ids)
			and p.created_at <> timestamptz 'epoch'
				+ (by_id -> p.id::text ->> 1)::bigint * interval '1 us')
		or exists (select from outbox.scheduled s where s.publisher = of_publisher and s.id = any (ids)
			and s.created_at <> timestamptz 'epoch'
				+ (by_id -> s.id::text ->> 1)::bigint * interval '1 us')
		or exists (select from outbox.parked p where p.publisher = of_publisher and p.was_id = any (ids)
			and p.was_id is not null)
		or exists (select from outbox.scheduled s where s.publisher = of_publisher and s.was_id = any (ids)
			and s.was_id is not null)
		or (select count(*) from jsonb_object_keys(by_id)) < cardinality(ids);
end
$$;

-- The state of the first row of a queue at a place: a stalled partition, -1 or -2 (outbox.parked.stalled).
create function outbox.parked_stall(place int) returns text language sql immutable as $$
	select case when place operator(pg_catalog.=) -2 then 'paused' else 'stalled' end
$$;

-- Notes refusals and those behind them: {"rows": [[id, created at in us since 1970, error or null, tick], ...],
-- "first_ms", "max_ms": of the back-off, "max_attempts"}. A fifth value of a row is the partition that stalls,
-- a sixth, true: it is not to be tried again. A row that is parked already and has no
-- error stays as it is; but a row that was free is behind another one now. A row of outbox.scheduled leaves
-- that table. Returns `parks` with the ids under which the rows are kept.
create function outbox.park(of_publisher text, of_shard int, parks jsonb) returns jsonb
language plpgsql volatile as $$
declare
	first_ms float8 := (parks ->> 'first_ms')::float8;
	max_ms float8 := (parks ->> 'max_ms')::float8;
	max_attempts int := (parks ->> 'max_attempts')::int;
	by_id jsonb; -- the rows
	refused bigint[];
	others bigint[]; -- behind them
begin
	select jsonb_object_agg(r ->> 0, r), array_agg((r ->> 0)::bigint) filter (where r ->> 2 is not null),
			array_agg((r ->> 0)::bigint) filter (where r ->> 2 is null)
		into by_id, refused, others
		from jsonb_array_elements(parks -> 'rows') r;
	if outbox.kept_ids_meet(of_publisher, of_shard, refused || others, by_id) then
		parks := jsonb_set(parks, '{rows}', outbox.kept_rows(of_publisher, of_shard, parks -> 'rows'));
		select jsonb_object_agg(r ->> 0, r), array_agg((r ->> 0)::bigint) filter (where r ->> 2 is not null),
				array_agg((r ->> 0)::bigint) filter (where r ->> 2 is null)
			into by_id, refused, others
			from jsonb_array_elements(parks -> 'rows') r;
	end if;

	-- capped exponential, between half of it and the whole
	with changed as (
		update outbox.parked p set (error, stalled, attempts, state, next_at, changed) = (
			select noted.error, noted.stalled,
				p.attempts + case when noted.stalled is null then 1 else 0 end,
				case when noted.stalled is not null then outbox.parked_stall(noted.stalled)
					when noted.dead or p.attempts + 1 >= max_attempts then 'dead' else 'waiting' end,
				clock_timestamp() + (0.5 + random() / 2) * interval '1 ms'
					* least(max_ms, first_ms * 2 ^ least(p.attempts, 40)),
				pg_current_xact_id()
			from (
				select r ->> 2 as error, (r ->> 4)::int as stalled, (r ->> 5)::boolean as dead
				from (select by_id -> p.id::text as r) n) noted)
		where p.publisher = of_publisher and p.id = any (refused)
		returning p.id, p.error, p.stalled, p.attempts, p.request_id
	)
	-- results of rows that an operator retried
	update outbox.parked_request r set refused = r.refused + again.rows,
		refused_id = coalesce(r.refused_id, again.id), error = coalesce(r.error, again.error)
	from (select c.request_id, count(*) as rows, min(c.id) as id,
			(array_agg(c.error order by c.id))[1] as error
		from changed c where c.request_id is not null and c.stalled is null and c.attempts = 1
		group by c.request_id) again
	where r.publisher = of_publisher and r.shard = of_shard and r.id = again.request_id;
	update outbox.parked p set state = 'behind'
	where p.publisher = of_publisher and p.id = any (others) and p.state = 'free';

	with noted as (
		select (r.value ->> 0)::bigint as id, r.value ->> 2 as error, r.ordinality as place,
			(r.value ->> 3)::bigint as tick, (r.value ->> 4)::int as stalled,
			(r.value ->> 5)::boolean as dead, (r.value ->> 6)::bigint as was_id,
			timestamptz 'epoch' + (r.value ->> 1)::bigint * interval '1 us' as created_at
		from jsonb_array_elements(parks -> 'rows') with ordinality r
	)
	insert into outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, headers,
		partition, tick, state, error, stalled, attempts, next_at, was_id)
	select of_publisher, of_shard, noted.id, m.created_at, m.event_id, m.topic, m.key, m.payload, m.headers,
		m.partition, noted.tick, case when noted.error is null then 'behind'
			when noted.stalled is not null then outbox.parked_stall(noted.stalled)
			when noted.dead or max_attempts <= 1 then 'dead' else 'waiting' end,
		noted.error, noted.stalled,
		case when noted.error is null or noted.stalled is not null then 0 else 1 end,
		clock_timestamp() + (0.5 + random() / 2) * interval '1 ms' * least(max_ms, first_ms), m.was_id
	from noted cross join lateral (
		select s.created_at, s.event_id, s.topic, s.key, s.payload, s.headers, s.partition, s.was_id
		from outbox.scheduled s where s.publisher = of_publisher and s.id = noted.id
		union all
		select m.created_at, m.event_id, m.topic, outbox.published_bytes(m.key, m.key_bytes),
			outbox.published_bytes(m.payload, m.payload_bytes), m.headers, m.partition, noted.was_id
		from outbox.message m
		where m.id = coalesce(noted.was_id, noted.id) and m.created_at = noted.created_at
		limit 1) m
	order by noted.place
	on conflict (id, publisher) do nothing;
	delete from outbox.scheduled s where s.publisher = of_publisher and s.id = any (refused || others);

	-- A later row of a queue may have become free before these rows came: it goes behind them. Only the index of
	-- queues has this order: the primary key would serve an order by id alone.
	update outbox.parked p set state = 'behind'
	where p.publisher = of_publisher and p.id = any (array(
		select following.id from (
			select q.digest, q.topic, q.key, max(q.id) as last_id from outbox.parked q
			where q.publisher = of_publisher and q.id = any (refused || others) and q.key is not null
			group by q.digest, q.topic, q.key) last
		cross join lateral (
			select q.id, q.state from outbox.parked q
			where q.publisher = of_publisher and q.shard = of_shard
				and (q.digest, q.id) > (last.digest, last.last_id) and q.digest <= last.digest
				and q.topic = last.topic and q.key = last.key
			order by q.digest, q.id limit 1) following
		where following.state = 'free'));

	-- their head may have left while these rows were being parked
	perform outbox.parked_free(of_publisher, of_shard, array_agg(q.topic), array_agg(q.key)) from (
		select distinct p.topic, p.key from outbox.parked p
		where p.publisher = of_publisher and p.id = any (refused || others) and p.state = 'behind'
	) q;
	return parks;
end
$$;

-- Rows are free, or behind the first of their queue, that were parked since a partition took nothing, or a topic was
-- missing (-1) or paused (-2). places: those that
-- are there again, [[topic, partition, id up to which its rows are free], ...]. At most `batch` rows in one call.
-- Returns the progress at each place it examined; last_id null: none of its rows is left.
create function outbox.parked_recover(of_publisher text, of_shard int, places jsonb, batch int)
returns table (topic text, partition int, last_id bigint) language plpgsql volatile as $$
#variable_conflict use_column
declare
	place jsonb;
	ids bigint[];
begin
	for place in select r from jsonb_array_elements(places) r loop
		topic := place ->> 0;
		partition := place ->> 1;
		-- beyond the last id, so that no call scans the index entries of rows that earlier calls removed
		ids := array(select p.id from outbox.parked p
			where p.publisher = of_publisher and p.shard = of_shard and p.topic = parked_recover.topic
				and p.stalled = parked_recover.partition
				and p.state = outbox.parked_stall(parked_recover.partition)
				and p.id > (place ->> 2)::bigint
			order by p.id limit batch);
		-- a row that waited for its deliver_at, and was refused, may be in front
		update outbox.parked p set next_at = clock_timestamp(), state = case when exists (
				select from outbox.parked q
				where q.publisher = of_publisher and q.shard = of_shard and q.digest = p.digest and q.id < p.id
					and q.topic = p.topic and q.key = p.key) then 'behind' else 'free' end
			where p.publisher = of_publisher and p.id = any (ids);
		last_id := case when cardinality(ids) >= batch then ids[cardinality(ids)] end;
		return next;
		batch := batch - cardinality(ids);
		exit when batch <= 0;
	end loop;
end
$$;

-- Deletes rows that were published, or are skipped, from outbox.parked and outbox.scheduled. Returns the
-- digests of queues that are empty now.
create function outbox.unpark(of_publisher text, of_shard int, ids bigint[], were_published boolean)
returns setof bigint language plpgsql volatile as $$
#variable_conflict use_column
declare
	topics text[];
	keys bytea[];
	retried bigint[];
begin
	delete from outbox.scheduled s where s.publisher = of_publisher and s.id = any (ids);
	with gone as (
		delete from outbox.parked p where p.publisher = of_publisher and p.id = any (ids)
		returning p.topic, p.key, p.attempts, p.request_id
	)
	select array_agg(g.topic) filter (where g.key is not null and g.number = 1),
			array_agg(g.key) filter (where g.key is not null and g.number = 1),
			array_agg(g.request_id) filter (where g.request_id is not null and g.attempts = 0)
		into topics, keys, retried
		from (select gone.*, row_number() over (partition by gone.topic, gone.key) as number
			from gone) g;
	if retried is not null then
		update outbox.parked_request r
			set published = r.published + case when were_published then q.rows else 0 end,
				done = r.done - case when were_published then 0 else q.rows end
			from (select x, count(*) as rows from unnest(retried) x group by x) q
			where r.publisher = of_publisher and r.shard = of_shard and r.id = q.x;
	end if;
	if topics is null then
		return;
	end if;
	perform outbox.parked_free(of_publisher, of_shard, topics, keys);
	return query select d.digest from (
			select distinct outbox.parked_digest(k.topic, k.key) as digest
			from unnest(topics, keys) k (topic, key)) d
		-- the planner may turn `not exists` into a join that reads all digests
		where (select p.digest from outbox.parked p
			where p.publisher = of_publisher and p.shard = of_shard and p.digest = d.digest limit 1) is null;
end
$$;

-- Does the shard have a request to work on now? A request that waits for the end of a window is due at that
-- end.
create function outbox.parked_asked(of_publisher text, of_shard int, first_tick bigint, of_verb text default null)
returns boolean language plpgsql volatile as $$
begin
	return exists (select from outbox.parked_request r
		where r.publisher = of_publisher and r.shard = of_shard and r.ended_at is null
			and (r.waits_for is null or r.waits_for <= first_tick)
			and (of_verb is null or r.verb = of_verb));
end
$$;

-- Carries out a part of the operators' requests; no listed window is open. At most `batch` rows are retried
-- or skipped, and ten times as many examined. Skips come first, since their rows must not be published.
-- Returns the digests of queues that are empty now.
create function outbox.parked_requests(of_publisher text, of_shard int, first_tick bigint, batch int)
returns setof bigint language plpgsql volatile as $$
#variable_conflict use_column
declare
	request outbox.parked_request;
	ids bigint[];
	upto bigint;
	examined int;
	ends boolean;
	changed_ids bigint[];
begin
	-- locked, so that nobody cancels it during this batch
	select r.* into request from outbox.parked_request r
		where r.publisher = of_publisher and r.shard = of_shard and r.ended_at is null
			and (r.waits_for is null or r.waits_for <= first_tick)
		order by r.verb = 'skip' desc, r.id limit 1 for no key update;
	if not found then
		return;
	end if;

	with judged as (
		select c.id, c.tick, c.shard = of_shard and pg_visible_in_snapshot(c.txid, request.asked)
			and c.request_id is distinct from request.id
			and outbox.parked_may(request.verb, c.state)
			and outbox.parked_is(c.id, c.topic, c.key, c.error, c.parked_at, c.state,
				request.filter) as matches,
			request.seen is null or pg_visible_in_snapshot(c.changed, request.seen) as is_same
		from outbox.parked_candidates(of_publisher, request.filter, request.last_id, 10 * batch) c
	), numbered as (
		select j.id, j.tick, j.matches and j.is_same as meant, j.matches and not j.is_same as is_changed,
			j.matches and j.is_same and (request.verb = 'retry' or j.tick <= first_tick) as ready,
			count(*) filter (where j.matches) over (order by j.id) as number
		from judged j
	)
	select array_agg(n.id) filter (where n.ready), max(n.id), count(*),
			-- a later pass meets them again
			array_agg(n.id order by n.id) filter (where n.is_changed and n.id > request.changed_id),
			count(*) < 10 * batch and count(*) = (select count(*) from judged),
			least(request.left_id, min(n.id) filter (where n.meant and not n.ready)),
			least(request.left_tick, min(n.tick) filter (where n.meant and not n.ready))
		into ids, upto, examined, changed_ids, ends, request.left_id, request.left_tick
		from numbered n where n.number <= batch;

	update outbox.parked_request r set last_id = case when ends and request.left_id is not null
			then request.left_id - 1 else coalesce(upto, r.last_id) end,
		left_id = case when not ends then request.left_id end,
		left_tick = case when not ends then request.left_tick end,
		waits_for = case when ends then request.left_tick end,
		looked = r.looked + examined, done = r.done + coalesce(cardinality(ids), 0),
		changed = r.changed + coalesce(cardinality(changed_ids), 0),
		changed_id = coalesce(changed_ids[cardinality(changed_ids)], r.changed_id), noted_at = clock_timestamp(),
		ended_at = case when ends and request.left_id is null then clock_timestamp() end
	where r.publisher = of_publisher and r.shard = of_shard and r.id = request.id;

	if request.verb = 'retry' then
		update outbox.parked p set state = 'waiting', attempts = 0, next_at = clock_timestamp(),
			request_id = request.id, changed = pg_current_xact_id()
		where p.publisher = of_publisher and p.id = any (ids);
	elsif cardinality(ids) > 0 then
		insert into outbox.skipped (publisher, request_id, ids) values (of_publisher, request.id, ids);
		return query select u from outbox.unpark(of_publisher, of_shard, ids, false) u;
	end if;
end
$$;

-- The ids of the next listed window: due heads alone, free ones with those behind them, up to the next that
-- is more than that; null: none. Looks at the heads that are due first, ten times as many as may be
-- listed. Where as many are parked from windows that are still open and none may be listed, the next look goes
-- on behind them: `behind` is the time (us since 1970) and the id of the last one, null: begin at the first. So each
-- due head is looked at once in a round over all due heads. Every round ends: a head that becomes due later has a
-- later time. Nothing is listed while a skip is worked off, which may mean the row.
create function outbox.parked_next(
	of_publisher text, of_shard int, first_tick bigint, max_rows int, max_bytes bigint,
	inout behind bigint[], out ids bigint[])
language sql volatile as $$
	with due as (
		select p.id, p.topic, p.key, p.digest, p.state, p.tick, p.next_at from outbox.parked p
		where p.publisher = of_publisher and p.shard = of_shard and p.state in ('waiting', 'free')
			-- as queries of their own the times are bounds of the index scan
			and p.next_at <= (select clock_timestamp())
			and (p.next_at, p.id) > ((select case when behind[1] is null then '-infinity'
				else timestamptz 'epoch' + behind[1] * interval '1 us' end), (select coalesce(behind[2], 0)))
			and not (select outbox.parked_asked(of_publisher, of_shard, first_tick, 'skip'))
		order by p.next_at, p.id limit 10 * max_rows
	), heads as (
		select d.* from due d where d.tick <= first_tick limit max_rows
	), rows as (
		-- stops with the head that fills the list, and takes only the first rows of each queue
		select q.id, q.bytes from heads h cross join lateral (
			select p.id, coalesce(octet_length(p.payload), 0) + 1000 as bytes
			from outbox.parked p where p.publisher = of_publisher and p.id = h.id
			union all
			select f.id, f.bytes from (
				select p.id, coalesce(octet_length(p.payload), 0) + 1000 as bytes,
					bool_and(p.state = 'behind' and p.tick <= first_tick)
					over (order by p.id) as follows
				from outbox.parked p
				where h.state = 'free' and p.publisher = of_publisher and p.shard = of_shard
					and p.digest = h.digest and p.topic = h.topic and p.key = h.key
					and p.id > h.id
				order by p.id limit max_rows) f
			where f.follows) q
		limit max_rows
	), sums as (
		select r.id, sum(r.bytes) over (order by r.id) as bytes from rows r
	)
	select case
		when (select count(*) from due) < 10 * max_rows then null
		when exists (select from heads) then behind
		else (select array[(extract(epoch from d.next_at) * 1000000)::bigint, d.id] from due d
			order by d.next_at desc, d.id desc limit 1) end,
		(select array_agg(u.id order by u.id) from sums u
		where u.bytes <= max_bytes or u.id = (select min(r.id) from rows r))
$$;

-- Milliseconds until a head is due, or its window is checked again; null: never. It reads only the head
-- that is due first, because reading all of many heads takes long.
create function outbox.parked_wait(of_publisher text, of_shard int, first_tick bigint) returns bigint
language sql volatile as $$
	select least((
		select greatest(0, ceil(extract(epoch from case when p.tick <= first_tick then p.next_at
			else greatest(p.next_at, clock_timestamp() + interval '50 ms') end
			- clock_timestamp()) * 1000))::bigint
		from outbox.parked p
		where p.publisher = of_publisher and p.shard = of_shard and p.state in ('waiting', 'free')
		order by p.next_at limit 1), (
		select case when min(coalesce(r.waits_for, 0)) <= first_tick then 0 else 50 end
		from outbox.parked_request r
		where r.publisher = of_publisher and r.shard = of_shard and r.ended_at is null having count(*) > 0))
$$;

-- Returns the places, from 1 on, of records that are parked already or have a parked key. A parked row is the
-- record itself if its id and its event id are the same. The digest is enough: a
-- record that shares the digest of another queue is parked as the head of its own, and is free at once.
create function outbox.parked_lookup(of_publisher text, of_shard int, of_n bigint, of_nonce bigint, ids bigint[],
	digests bigint[], events uuid[] default null) returns table (place int, itself boolean) language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set search_path = pg_catalog, pg_temp as $$
begin
	perform outbox.log_guard(of_publisher, of_shard, of_n, of_nonce);
	return query select b.place::int, b.itself from (
			select a.place, a.digest, p.id is not null or exists (select from outbox.parked w
				where w.publisher = of_publisher and w.was_id = a.id and w.was_id is not null
					and w.event_id = a.event) as itself
			from unnest(ids, digests, events) with ordinality a (id, digest, event, place)
			left join outbox.parked p on p.publisher = of_publisher and p.id = a.id
				and (a.event is null or p.event_id = a.event)) b
		where b.itself or exists (select from outbox.parked q
			where q.publisher = of_publisher and q.shard = of_shard and q.digest = b.digest);
end
$$;

-- A page of digests, for a filter that may hold one more than once.
create function outbox.parked_digests(of_publisher text, of_shard int, of_n bigint, of_nonce bigint,
	from_digest bigint, most int) returns setof bigint language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp as $$
begin
	perform outbox.log_guard(of_publisher, of_shard, of_n, of_nonce);
	return query select p.digest from outbox.parked p
		where p.publisher = of_publisher and p.shard = of_shard and p.digest >= from_digest
		order by p.digest limit most;
end
$$;

-- The partitions, or missing (-1) and paused (-2) topics, of which rows are parked since they took nothing. Each is found by the
-- first of its rows.
create function outbox.parked_places(of_publisher text, of_shard int, of_n bigint, of_nonce bigint,
	after_topic text, after_partition int, most int)
returns table (topic text, partition int) language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
	perform outbox.log_guard(of_publisher, of_shard, of_n, of_nonce);
	topic := coalesce(after_topic, '');
	partition := after_partition;
	for i in 1 .. most loop
		select p.topic, p.stalled into topic, partition from outbox.parked p
			where p.publisher = of_publisher and p.shard = of_shard and p.stalled is not null
				and (p.topic, p.stalled) > (parked_places.topic, parked_places.partition)
			order by p.topic, p.stalled limit 1;
		exit when topic is null;
		return next;
	end loop;
end
$$;

-- Is a row among those that an operator chose? {"ids": [1, 2], "from_id", "to_id", "topic",
-- "key": "\\x6b31", "error": a part of it, "from", "to": range of parked_at, without the end, "state"};
-- a missing member restricts nothing. One expression, so that the planner sees through it.
create function outbox.parked_is(id bigint, topic text, key bytea, error text, parked_at timestamptz,
	state text, chosen jsonb) returns boolean language sql stable as $$
	select id operator(pg_catalog.>=) coalesce((chosen operator(pg_catalog.->>) 'from_id')::bigint, 0)
		and id operator(pg_catalog.<=)
			coalesce((chosen operator(pg_catalog.->>) 'to_id')::bigint, 9223372036854775807)
		and (chosen operator(pg_catalog.->) 'ids' is null
			or (chosen operator(pg_catalog.->) 'ids') operator(pg_catalog.@>) pg_catalog.to_jsonb(id))
		and (chosen operator(pg_catalog.->>) 'topic' is null
			or topic operator(pg_catalog.=) (chosen operator(pg_catalog.->>) 'topic'))
		and (chosen operator(pg_catalog.->>) 'key' is null
			or key operator(pg_catalog.=) (chosen operator(pg_catalog.->>) 'key')::pg_catalog.bytea)
		and (chosen operator(pg_catalog.->>) 'error' is null
			or position(chosen operator(pg_catalog.->>) 'error' in error) operator(pg_catalog.>) 0)
		and (chosen operator(pg_catalog.->>) 'from' is null
			or parked_at operator(pg_catalog.>=) (chosen operator(pg_catalog.->>) 'from')::pg_catalog.timestamptz)
		and (chosen operator(pg_catalog.->>) 'to' is null
			or parked_at operator(pg_catalog.<) (chosen operator(pg_catalog.->>) 'to')::pg_catalog.timestamptz)
		and (chosen operator(pg_catalog.->>) 'state' is null
			or state operator(pg_catalog.=) (chosen operator(pg_catalog.->>) 'state'))
$$;
comment on function outbox.parked_is(bigint, text, bytea, text, timestamptz, text, jsonb) is 'Returns whether a '
	'parked message matches a filter. Members of the filter: ids, from_id, to_id, topic, key, error (a part of it), '
	'from and to (parked_at, without the end), state. A missing member matches everything.';

-- May an operator request this? Only heads are retried: a free row is published anyway, a row behind waits for its
-- head, and a paused row for the end of the pause.
create function outbox.parked_may(verb text, state text) returns boolean
language sql immutable as $$
	select verb operator(pg_catalog.=) 'skip'
		or state operator(pg_catalog.=) any (array['waiting', 'dead', 'stalled'])
$$;
comment on function outbox.parked_may(text, text) is 'Returns whether an operator can request `retry` or `skip` for '
	'a parked message in this state.';

-- So many rows of a publisher behind `after`, by id, among which a filter finds its own.
create function outbox.parked_candidates(of_publisher text, chosen jsonb, after bigint, most bigint)
returns table (id bigint, shard int, topic text, key bytea, state text, error text, parked_at timestamptz,
	tick bigint, request_id bigint, txid xid8, changed xid8) language plpgsql stable
	set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
	from_id bigint := greatest(after, coalesce((chosen ->> 'from_id')::bigint, 1) - 1);
	to_id bigint := coalesce((chosen ->> 'to_id')::bigint, 9223372036854775807);
	ids bigint[];
begin
	if chosen -> 'ids' is null then
		return query select p.id, p.shard, p.topic, p.key, p.state, p.error, p.parked_at, p.tick,
				p.request_id, p.txid, p.changed
			from outbox.parked p where p.publisher = of_publisher and p.id > from_id and p.id <= to_id
				and p.tick >= 0
			order by p.id limit most;
	else
		ids := array(select x::bigint from jsonb_array_elements_text(chosen -> 'ids') x);
		return query select p.id, p.shard, p.topic, p.key, p.state, p.error, p.parked_at, p.tick,
				p.request_id, p.txid, p.changed
			from outbox.parked p where p.publisher = of_publisher and p.id > after and p.id = any (ids)
			order by p.id limit most;
	end if;
end
$$;
comment on function outbox.parked_candidates(text, jsonb, bigint, bigint) is 'Returns up to `most` parked messages '
	'of a publisher with ids above `after`, to which a filter is then applied.';

-- The open request that matches a row and has not reached it yet; null: none.
create function outbox.parked_request_of(of_publisher text, of_shard int, of_id bigint, topic text, key bytea,
	error text, parked_at timestamptz, state text, txid xid8) returns bigint language sql stable
	set search_path = pg_catalog, pg_temp as $$
	select min(r.id) from outbox.parked_request r
	where r.publisher = of_publisher and r.shard = of_shard and r.ended_at is null
		and (of_id > r.last_id or of_id >= r.left_id)
		and pg_visible_in_snapshot(txid, r.asked) and outbox.parked_may(r.verb, state)
		and outbox.parked_is(of_id, topic, key, error, parked_at, state, r.filter)
$$;
comment on function outbox.parked_request_of(text, int, bigint, text, bytea, text, timestamptz, text, xid8) is 'Returns '
	'the open request that matches a parked message and has not reached it yet, or null.';

-- Notes what an operator asks for: 'retry' or 'skip'. All named ids must exist, allow the request and have no
-- other one, or the call fails with OR002. about: the number of examined rows, as `outbox-relay parked list`
-- shows it. caller: as in outbox.audit. total, exact, seen: as in outbox.parked_request.
create function outbox.parked_request(of_publisher text, new_verb text, chosen jsonb, new_reason text,
	new_about bigint, new_caller text default null, new_total bigint default null, new_exact boolean default true,
	new_seen pg_snapshot default null, out audit_id bigint) language plpgsql volatile
	set search_path = pg_catalog, pg_temp as $$
declare
	publisher_shards int;
begin
	perform outbox.replay_durable();
	perform outbox.require_read_committed();
	-- a wrong filter fails here and not in each call of the owner
	perform (chosen ->> 'from_id')::bigint, (chosen ->> 'to_id')::bigint, (chosen ->> 'key')::bytea,
		(chosen ->> 'from')::timestamptz, (chosen ->> 'to')::timestamptz;
	-- comes first, so that the second of two operators sees the request of the first, and a split waits
	update outbox.publisher s set requests = s.requests + 1 where s.name = of_publisher
		returning s.shards into publisher_shards;
	if not found then
		raise exception 'publisher % does not exist', of_publisher;
	end if;
	if exists (select from jsonb_array_elements_text(chosen -> 'ids') x where not exists (
		select from outbox.parked p where p.publisher = of_publisher and p.id = x::bigint
			and outbox.parked_may(new_verb, p.state)
			and outbox.parked_request_of(p.publisher, p.shard, p.id, p.topic, p.key, p.error, p.parked_at,
				p.state, p.txid) is null)) then
		raise exception 'rows may not be asked for, or have a request' using errcode = 'OR002';
	end if;
	insert into outbox.audit (caller, verb, publisher, target, reason)
	values (new_caller, new_verb, of_publisher, jsonb_build_object('filter', chosen), new_reason)
	returning id into audit_id;
	insert into outbox.parked_request (id, publisher, shard, verb, filter, about, total, is_exact, seen)
	select audit_id, of_publisher, n, new_verb, chosen, new_about, new_total, new_exact, new_seen
	from outbox.shard_numbers(publisher_shards) n;
end
$$;

-- Cancels an open request, between two batches of each owner. outcome: 'cancelled', 'ended', 'absent'.
create function outbox.parked_request_cancel(of_id bigint, new_reason text, new_caller text, out outcome text,
	out audit_id bigint) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
	of_publisher text := (select r.publisher from outbox.parked_request r where r.id = of_id limit 1);
begin
	perform outbox.replay_durable();
	perform outbox.require_read_committed();
	-- comes first: see outbox.parked_request
	update outbox.publisher s set requests = s.requests + 1 where s.name = of_publisher;
	update outbox.parked_request r set ended_at = clock_timestamp(), is_cancelled = true
		where r.id = of_id and r.ended_at is null;
	outcome := case when of_publisher is null then 'absent' when found then 'cancelled' else 'ended' end;
	if outcome = 'cancelled' then
		insert into outbox.audit (caller, verb, publisher, target, reason)
		values (new_caller, 'cancel', of_publisher, jsonb_build_object('request', of_id), new_reason)
		returning id into audit_id;
	end if;
end
$$;

-- Opens a cancelled request again; it goes on where it was. outcome: 'resumed', 'running', 'finished', 'absent'.
create function outbox.parked_request_resume(of_id bigint, new_reason text, new_caller text, out outcome text,
	out audit_id bigint) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
	of_publisher text := (select r.publisher from outbox.parked_request r where r.id = of_id limit 1);
begin
	perform outbox.replay_durable();
	perform outbox.require_read_committed();
	update outbox.publisher s set requests = s.requests + 1 where s.name = of_publisher;
	update outbox.parked_request r set ended_at = null, is_cancelled = false, begun_at = clock_timestamp(),
			begun_done = r.done, noted_at = clock_timestamp()
		where r.id = of_id and r.is_cancelled;
	outcome := case when of_publisher is null then 'absent' when found then 'resumed'
		when exists (select from outbox.parked_request r where r.id = of_id and r.ended_at is null) then 'running'
		else 'finished' end;
	if outcome = 'resumed' then
		insert into outbox.audit (caller, verb, publisher, target, reason)
		values (new_caller, 'resume', of_publisher, jsonb_build_object('request', of_id), new_reason)
		returning id into audit_id;
	end if;
end
$$;

-- After a change of the number of shards: each new shard gets the open and the cancelled requests, from the
-- progress of the slowest old shard.
create function outbox.parked_requests_split(of_publisher text, new_shards int) returns void
language sql volatile as $$
	with old as (
		delete from outbox.parked_request r where r.publisher = of_publisher and r.id in (
			select o.id from outbox.parked_request o
			where o.publisher = of_publisher and (o.ended_at is null or o.is_cancelled))
		returning r.*
	), sums as (
		select o.id, o.verb, o.filter, (array_agg(o.asked))[1] as asked, min(o.asked_at) as asked_at, max(o.about) as about,
			min(least(o.last_id, o.left_id - 1)) filter (where o.ended_at is null or o.is_cancelled) as last_id,
			min(o.looked) as looked, sum(o.done) as done, sum(o.published) as published,
			sum(o.refused) as refused, min(o.refused_id) as refused_id, min(o.error) as error,
			(array_agg(o.seen))[1] as seen, max(o.total) as total, bool_and(o.is_exact) as is_exact,
			sum(o.changed) as changed, max(o.changed_id) as changed_id, max(o.begun_at) as begun_at,
			sum(o.begun_done) as begun_done, bool_or(o.is_cancelled) as is_cancelled, max(o.ended_at) as ended_at
		from old o group by o.id, o.verb, o.filter
	)
	insert into outbox.parked_request (id, publisher, shard, verb, filter, asked, asked_at, about, last_id,
		looked, done, published, refused, refused_id, error, seen, total, is_exact, changed, changed_id, begun_at,
		begun_done, is_cancelled, ended_at)
	select s.id, of_publisher, n, s.verb, s.filter, s.asked, s.asked_at, s.about, s.last_id,
		s.looked, case when n = 0 then s.done else 0 end,
		case when n = 0 then s.published else 0 end, case when n = 0 then s.refused else 0 end,
		case when n = 0 then s.refused_id end, case when n = 0 then s.error end, s.seen, s.total, s.is_exact,
		case when n = 0 then s.changed else 0 end, s.changed_id, s.begun_at, case when n = 0 then s.begun_done else 0 end, s.is_cancelled,
		case when s.is_cancelled then s.ended_at end
	from sums s cross join outbox.shard_numbers(new_shards) n
$$;
