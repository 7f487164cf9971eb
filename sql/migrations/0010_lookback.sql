-- oldest-program: 0.1.0
--
-- The look-back's journal of prepares and their decisions. Insert-only, and kept in partitions by
-- prepared_at with the functions of 0004_partitions.sql. A prepare is undecided as long as it has no
-- decision, and its partition stays as long.
--
-- prepare    a message that is to be published if its business transaction commits
-- decision   the outcome of the prepare with the same biz_type, biz_id and prepared_at. All three
--            are the prepare's, so that both rows lie in one partition, and the primary key lets the
--            first durable decision win, whoever makes it
-- tombstone  a decision that came before its prepare; prepared_at is when it came
--
-- A decider first reads the prepare, in the same transaction in which it then inserts the decision. From
-- then on a lock keeps the partition from being emptied; without it a second decision would win in a
-- partition that has just lost the first. A prepare is searched by a statement that locks the table
-- before it takes its snapshot, as the statements of volatile functions do, because upkeep may move it
-- out of the default partition at any time (0004_partitions.sql).
--
-- The txid answers one question: has a row come since a partition was checked? Under the lock that keeps
-- everybody out only an index can answer it in time; the time of a second search for undecided prepares
-- would grow with the partition. The rows of one batch share a txid, so that the index keeps it once for
-- many of them, at its right end. The question is not needed for decisions (the partition of an
-- undecided prepare is held anyway), but an index for prepares alone would save little and be one more
-- rule.

-- Domains, and few constraints on the table: each constraint of a table must be created and dropped with
-- every partition, while its writers wait.
create domain outbox.lookback_kind as text collate "C"
	constraint kind_is_prepare_decision_or_tombstone check (
		value in ('prepare', 'decision', 'tombstone'));
comment on domain outbox.lookback_kind is 'prepare, decision or tombstone.';
create domain outbox.lookback_decision as text collate "C"
	constraint decision_is_commit_or_rollback check (value in ('commit', 'rollback'));
comment on domain outbox.lookback_decision is 'commit or rollback.';
create domain outbox.lookback_source as text collate "C"
	constraint source_is_message_check_or_operator check (
		value in ('message', 'check', 'operator'));
comment on domain outbox.lookback_source is 'message, check or operator.';

create table outbox.lookback (
	biz_type         text collate "C" not null,
	biz_id           text collate "C" not null,
	prepared_at      timestamptz not null default clock_timestamp(),
	kind             outbox.lookback_kind not null,
	txid             xid8 not null default pg_current_xact_id(),
	section          text collate "C" not null,
	source_partition int,
	source_offset    bigint,
	topic            outbox.topic_name,
	key              outbox.message_key,
	payload          outbox.message_payload,
	headers          outbox.message_headers,
	check_service    text,
	check_url        text,
	check_at         timestamptz,
	expires_at       timestamptz,
	digest           bytea,
	decision         outbox.lookback_decision,
	source           outbox.lookback_source,
	decided_at       timestamptz,
	decided_by       text,
	reason           text,
	event_id         uuid,
	unique_key       text collate "C",
	within           interval,
	while_pending    text collate "C",
	duplicate        boolean,
	-- the id first: most rows are of few types, so that each comparison would look at both
	primary key (biz_id, biz_type, prepared_at, kind),
	constraint a_prepare_has_a_place_a_topic_and_a_time_to_check check (kind <> 'prepare'
		or num_nulls(source_partition, source_offset, topic, check_at, digest, event_id) = 0
			and num_nonnulls(decision, source, decided_at, decided_by, reason, duplicate) = 0
			and (unique_key is null) = (within is null)
			and (unique_key is not null or while_pending is null)),
	constraint a_decision_says_what_by_what_and_when check (kind <> 'decision'
		or num_nulls(decision, source, decided_at) = 0
			and (event_id is not null) = (decision = 'commit')
			and (duplicate is null or decision = 'commit')
			and num_nonnulls(topic, key, payload, headers, check_service, check_url, check_at,
				expires_at, digest, unique_key, within, while_pending) = 0),
	constraint a_tombstone_says_what_and_has_a_place check (kind <> 'tombstone'
		or num_nulls(decision, source_partition, source_offset) = 0
			and num_nonnulls(topic, key, payload, headers, check_service, check_url, check_at,
				expires_at, digest, source, decided_at, decided_by, reason, event_id, unique_key, within,
				while_pending, duplicate) = 0)
) partition by range (prepared_at);

create index on outbox.lookback (txid);
-- the prepares of a partition of the topic that come due
create index on outbox.lookback (section, source_partition, check_at) where kind = 'prepare';
-- for counting decisions whose prepare never came
create index on outbox.lookback (section, biz_type, prepared_at) where kind = 'tombstone';
-- the prepares with a unique key, which only prepares have: without any, a decider looks no further
create index on outbox.lookback (biz_id, biz_type, prepared_at) where unique_key is not null;

-- As for the message table.
do $$
begin
	if exists (select from pg_catalog.pg_settings
		where name = 'default_toast_compression' and 'lz4' = any (enumvals)) then
		execute 'alter table outbox.lookback alter column payload set compression lz4';
	end if;
end $$;

comment on table outbox.lookback is 'Prepared messages of the look-back and their decisions; insert-only.';
comment on column outbox.lookback.biz_type is 'Business type.';
comment on column outbox.lookback.biz_id is 'Id of the message within its business type.';
comment on column outbox.lookback.prepared_at is 'Database time at which the prepare or tombstone was stored. A '
	'decision has the value of its prepare.';
comment on column outbox.lookback.kind is 'prepare, decision, or tombstone: a decision that arrived before its '
	'prepare.';
comment on column outbox.lookback.txid is 'Id of the top-level transaction that wrote the row, never of a savepoint.';
comment on column outbox.lookback.section is '[lookback] section that stored the row.';
comment on column outbox.lookback.source_partition is 'Partition of the look-back topic that the record came from.';
comment on column outbox.lookback.source_offset is 'Offset of that record.';
comment on column outbox.lookback.topic is 'Topic that the message goes to.';
comment on column outbox.lookback.key is 'Key of the message.';
comment on column outbox.lookback.payload is 'Payload of the message.';
comment on column outbox.lookback.headers is 'Headers of the message.';
comment on column outbox.lookback.check_service is '[check] section that the prepare names.';
comment on column outbox.lookback.check_url is 'URL that the prepare names.';
comment on column outbox.lookback.check_at is 'Time from which the relay calls the business if there is no decision.';
comment on column outbox.lookback.expires_at is 'Time at which the prepare is parked if there is no decision.';
comment on column outbox.lookback.digest is 'Equal for prepares with the same content.';
comment on column outbox.lookback.decision is 'commit or rollback.';
comment on column outbox.lookback.source is 'Source of the decision: message, check or operator.';
comment on column outbox.lookback.decided_at is 'Time of the decision.';
comment on column outbox.lookback.decided_by is 'Database user, if an operator decided.';
comment on column outbox.lookback.reason is 'Reason of an operator.';
comment on column outbox.lookback.event_id is 'Id of the message that a commit writes (outbox.message.event_id). In '
	'the decision of a duplicate: id of the message that has the unique key.';
comment on column outbox.lookback.unique_key is 'Unique key of the message within its topic, as of outbox.publish. null: '
	'none.';
comment on column outbox.lookback.within is 'Time for which the message has its unique key, from when it is written.';
comment on column outbox.lookback.while_pending is 'published or done: how long the message has its unique key instead.';
comment on column outbox.lookback.duplicate is 'true in a commit that wrote no message, since the message event_id had '
	'the unique key. Otherwise null.';

-- Takes the rows that fit into no other partition, so that an insert never fails. Normally empty.
create table outbox.lookback_default
	(like outbox.lookback including all excluding identity excluding comments)
	with (autovacuum_freeze_min_age = 0, toast.autovacuum_freeze_min_age = 0);
-- the range of no other partition has such a time
alter table outbox.lookback_default
	add constraint prepared_at_is_finite check (isfinite(prepared_at));
alter table outbox.lookback attach partition outbox.lookback_default default;

-- The section of a prepare in this partition that is undecided; null: there is none. One pass over
-- the primary key in its order, which needs neither memory nor the rows themselves and ends at the
-- first one: 'decision' comes before 'prepare'.
create function outbox.lookback_holder(leaf text) returns text language plpgsql
	set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
	set enable_hashagg = off set jit = off as $$
declare
	holder text;
begin
	execute format('
		select p.section from (
			select l.biz_id, l.biz_type, l.prepared_at from outbox.%1$I l
			where l.kind in (''decision'', ''prepare'')
			group by l.biz_id, l.biz_type, l.prepared_at having min(l.kind) = ''prepare'' limit 1
		) undecided
		join outbox.%1$I p using (biz_type, biz_id, prepared_at) where p.kind = ''prepare''', leaf)
		into holder;
	return holder;
end $$;

select outbox.partitions_begin('lookback');
