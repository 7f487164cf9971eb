-- oldest-program: 0.1.0
-- Replays, redrives and verifications: jobs that a relay carries out. Replays: rows that an operator publishes once more. The rows that a replay sends are fixed when it is
-- created: the rows of its filter that its snapshot sees. A row here is its progress, lease and fence: a
-- writer of the row must know the nonce that the last owner put there.

create table outbox.replay (
	id bigint generated always as identity primary key, -- the value of the header outbox-replay
	created_at timestamptz not null default clock_timestamp(),
	asked_by text not null default session_user,
	caller text, -- as in outbox.audit
	reason text,
	publisher text collate "C" not null,     -- whose cluster and settings are used
	filter jsonb not null,              -- {"ids": "10..20", "topic": "orders"}; {}: all
	target outbox.topic_name,           -- null: each row's own topic
	rate int constraint rate_is_positive check (rate > 0), -- records a second; null: no limit
	snapshot pg_snapshot not null,
	-- for a replay of rows that the publisher had published by then: its shards, and for each the acknowledged
	-- snapshot, that of the first open window and the id up to which this window was published
	shards int,
	acked pg_snapshot[],
	windows pg_snapshot[],
	acked_ids bigint[],
	upto_id bigint not null,            -- the largest id at the start
	last_id bigint not null,            -- everything up to here is acknowledged by Kafka
	total bigint not null,              -- rows at the start
	done bigint not null default 0,     -- rows acknowledged
	state text not null default 'running'
		constraint state_is_running_stopped_or_finished
		check (state in ('running', 'stopped', 'finished')),
	nonce bigint not null,
	owner text not null,
	lease_until timestamptz not null,
	noted_at timestamptz not null default clock_timestamp(),
	-- a relay carries it out, another one after the end of the lease; false: the process of a command does
	by_relay boolean not null default false,
	begun_at timestamptz not null default clock_timestamp(), -- of the newest run, as is the next
	begun_done bigint not null default 0,
	error text,
	system_identifier bigint not null
) with (fillfactor = 50); -- updated once a second: an update should find room on its page

create index replay_newest on outbox.replay (created_at);
create index replay_running on outbox.replay (id) where state = 'running';

comment on table outbox.replay is 'Replays: messages that an operator publishes again (`outbox-relay replay`). A row '
	'is the replay''s progress, lease and fence. Upkeep deletes it 30 days after the end, or later with a longer `retain`.';
comment on column outbox.replay.id is 'Number of the replay, sent as the header outbox-replay.';
comment on column outbox.replay.created_at is 'Time at which the replay was created.';
comment on column outbox.replay.asked_by is 'Database user who requested it.';
comment on column outbox.replay.caller is 'Caller of the HTTP interface who requested it. null: there was none.';
comment on column outbox.replay.reason is 'Reason that the user gave.';
comment on column outbox.replay.publisher is 'Publisher whose Kafka cluster and settings are used.';
comment on column outbox.replay.filter is 'Which messages, for example {"ids": "10..20", "topic": "orders"}. {}: '
	'all.';
comment on column outbox.replay.target is 'Topic that the messages go to. null: each goes to its own topic.';
comment on column outbox.replay.rate is 'Maximum number of records per second. null: no limit.';
comment on column outbox.replay.snapshot is 'Only messages that are visible in this snapshot are sent.';
comment on column outbox.replay.shards is 'Number of shards of the publisher at the start, for a replay of messages '
	'that the publisher had published by then; otherwise null.';
comment on column outbox.replay.acked is 'For each shard: everything that is visible in this snapshot was published '
	'at the start.';
comment on column outbox.replay.windows is 'For each shard: the snapshot that ends its first open window at the '
	'start.';
comment on column outbox.replay.acked_ids is 'For each shard: the id up to which that window was published at the '
	'start.';
comment on column outbox.replay.upto_id is 'Largest message id at the start.';
comment on column outbox.replay.last_id is 'Kafka has acknowledged everything up to this id.';
comment on column outbox.replay.total is 'Number of messages at the start.';
comment on column outbox.replay.done is 'Number of messages that Kafka acknowledged.';
comment on column outbox.replay.state is 'running, stopped or finished.';
comment on column outbox.replay.nonce is 'Random number of the current owner, which fences earlier owners.';
comment on column outbox.replay.owner is 'Process that sends the messages.';
comment on column outbox.replay.lease_until is 'End of the owner''s lease. After it another process may continue the '
	'replay.';
comment on column outbox.replay.noted_at is 'Time of the last update.';
comment on column outbox.replay.by_relay is 'Whether a relay sends the messages. Otherwise a command does.';
comment on column outbox.replay.begun_at is 'Time at which the newest owner began.';
comment on column outbox.replay.begun_done is 'Number of messages that Kafka had acknowledged at that time.';
comment on column outbox.replay.error is 'Error that ended the newest run, or that delays it.';
comment on column outbox.replay.system_identifier is 'System identifier of the database cluster in which the replay '
	'was created.';

-- If a crash of the server lost this update, more rows than promised would be repeated.
create function outbox.replay_durable() returns void language plpgsql volatile as $$
begin
	if current_setting('synchronous_commit') in ('off', 'local') then
		perform set_config('synchronous_commit', 'on', true);
	end if;
end
$$;

-- A new replay, owned by its maker, or by the first relay that takes it (new_by_relay). Returns its id.
create function outbox.replay_create(new_reason text, of_publisher text, new_filter jsonb, new_target text,
	new_rate int, new_snapshot pg_snapshot, of_shards int, of_acked pg_snapshot[],
	of_windows pg_snapshot[], of_acked_ids bigint[], low_id bigint, high_id bigint, rows bigint,
	new_nonce bigint, new_owner text, lease_ms bigint, new_caller text default null,
	new_by_relay boolean default false) returns bigint language plpgsql volatile
	set search_path = pg_catalog, pg_temp as $$
declare
	new_id bigint;
begin
	perform outbox.replay_durable();
	insert into outbox.replay (reason, publisher, filter, target, rate, snapshot, shards, acked, windows,
		acked_ids, upto_id, last_id, total, nonce, owner, lease_until, caller, by_relay, system_identifier)
	values (new_reason, of_publisher, new_filter, new_target, new_rate, new_snapshot, of_shards, of_acked,
		of_windows, of_acked_ids, high_id, low_id - 1, rows, new_nonce, new_owner,
		clock_timestamp() + lease_ms * interval '1 ms', new_caller, new_by_relay,
		outbox.system_identifier())
	returning replay.id into new_id;
	if new_reason ~ '[^[:space:]]' then
		insert into outbox.audit (caller, verb, publisher, target, reason)
		values (new_caller, 'replay', of_publisher, jsonb_build_object('replay', new_id, 'filter', new_filter,
			'topic', new_target, 'rows', rows), new_reason);
	end if;
	return new_id;
end
$$;

-- Takes a replay that no process runs. outcome: 'taken', 'held' (by holder, for wait_ms at most),
-- 'finished', 'elsewhere' (made in another database cluster, whose transaction ids mean nothing here),
-- 'stopped' (a relay takes only what is to be carried out by a relay), 'absent'.
create function outbox.replay_take(of_replay bigint, new_nonce bigint, new_owner text, lease_ms bigint,
	new_by_relay boolean default false, out outcome text, out holder text, out wait_ms bigint) language plpgsql volatile
	set search_path = pg_catalog, pg_temp as $$
declare
	found_row outbox.replay;
begin
	perform outbox.replay_durable();
	select r.* into found_row from outbox.replay r where r.id = of_replay for update;
	holder := found_row.owner;
	if found_row.id is null then
		outcome := 'absent';
	elsif found_row.state = 'finished' then
		outcome := 'finished';
	elsif new_by_relay and not (found_row.by_relay and found_row.state = 'running') then
		outcome := 'stopped';
	elsif found_row.system_identifier <> outbox.system_identifier()
		-- without pg_control_system() a dump copies the stored identifier as well
		or outbox.system_identifier() < 0 and exists (select from outbox.progress p where p.written_elsewhere) then
		outcome := 'elsewhere';
	elsif found_row.lease_until > clock_timestamp() then
		outcome := 'held';
		wait_ms := ceil(extract(epoch from found_row.lease_until - clock_timestamp()) * 1000);
	else
		outcome := 'taken';
		update outbox.replay r set nonce = new_nonce, owner = new_owner, state = 'running',
			by_relay = new_by_relay, begun_at = clock_timestamp(), begun_done = r.done,
			noted_at = clock_timestamp(),
			lease_until = clock_timestamp() + lease_ms * interval '1 ms'
			where r.id = of_replay;
	end if;
end
$$;

-- Stores progress of a job of the table (replay, redrive or verification) and renews its lease; any state except 'running'
-- ends the lease. 'released': another relay may continue at once. more: further columns of the row. False: another process took
-- the job, or somebody cancelled it (its lease ends), or it is not in this database.
create function outbox.job_note(of_table text, of_job bigint, of_nonce bigint, rows bigint, new_state text, lease_ms bigint,
	new_error text default null, more json default '{}') returns boolean language plpgsql volatile
	set search_path = pg_catalog, pg_temp as $$
declare
	columns text := (select string_agg(format(', %I = %L', m.key, m.value), '') from json_each_text(more) m);
	goes_on boolean;
begin
	perform outbox.replay_durable();
	execute format('select r.state = ''running'' from outbox.%I r where r.id = $1 and r.nonce = $2 for update', of_table)
		into goes_on using of_job, of_nonce;
	if goes_on is null then
		return false;
	end if;
	execute format('update outbox.%I r set done = $2, noted_at = clock_timestamp(), state = coalesce($3, r.state), '
		'error = $4, lease_until = clock_timestamp() + $5 * interval ''1 ms''%s where r.id = $1', of_table, columns)
		using of_job, rows, case when goes_on then replace(new_state, 'released', 'running') end,
			case when goes_on then new_error end,
			case when goes_on and new_state = 'running' then lease_ms else 0 end;
	return goes_on;
end
$$;

-- Stops a job; its owner finds out at its next note, behind its work that is under way, and has the lease until then.
-- outcome: 'cancelled', 'ended' (it does not run), 'absent'.
create function outbox.job_cancel(of_table text, of_job bigint, new_reason text, new_caller text, out outcome text,
	out audit_id bigint) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
	found_row jsonb;
begin
	perform outbox.replay_durable();
	execute format('select to_jsonb(r) from outbox.%I r where r.id = $1 for update', of_table) into found_row using of_job;
	outcome := case when found_row is null then 'absent' when found_row ->> 'state' = 'running' then 'cancelled'
		else 'ended' end;
	if outcome = 'cancelled' then
		execute format('update outbox.%I r set state = ''stopped'', error = null, noted_at = clock_timestamp() where r.id = $1',
			of_table) using of_job;
		insert into outbox.audit (caller, verb, publisher, target, reason)
		values (new_caller, 'cancel', found_row ->> 'publisher',
			jsonb_strip_nulls(jsonb_build_object(of_table, of_job, 'section', found_row -> 'section')), new_reason)
		returning id into audit_id;
	end if;
end
$$;

-- Lets a relay continue a job that was stopped, or whose command ended; the process that has the lease still, if there is
-- one. outcome: 'resumed', 'running', 'finished', 'elsewhere' as outbox.replay_take, 'absent'.
create function outbox.job_resume(of_table text, of_job bigint, new_reason text, new_caller text, out outcome text,
	out audit_id bigint) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
	found_row jsonb;
begin
	perform outbox.replay_durable();
	execute format('select to_jsonb(r) from outbox.%I r where r.id = $1 for update', of_table) into found_row using of_job;
	outcome := case when found_row is null then 'absent'
		when found_row ->> 'state' = 'finished' then 'finished'
		when (found_row ->> 'system_identifier')::bigint <> outbox.system_identifier() then 'elsewhere'
		when found_row ->> 'state' = 'running' and (coalesce((found_row ->> 'by_relay')::boolean, true)
			or (found_row ->> 'lease_until')::timestamptz > clock_timestamp()) then 'running'
		else 'resumed' end;
	if outcome = 'resumed' then
		execute format('update outbox.%I r set state = ''running'', error = null, noted_at = clock_timestamp()%s where r.id = $1',
			of_table, case when found_row ? 'by_relay' then ', by_relay = true' end) using of_job;
		insert into outbox.audit (caller, verb, publisher, target, reason)
		values (new_caller, 'resume', found_row ->> 'publisher',
			jsonb_strip_nulls(jsonb_build_object(of_table, of_job, 'section', found_row -> 'section')), new_reason)
		returning id into audit_id;
	end if;
end
$$;

-- Deletes jobs that ended 30 days ago, or retain_ms ago if that is longer: at most 1000 of each kind, the oldest first.
-- A replay whose command ended without finishing counts from its last progress.
create function outbox.job_tidy(retain_ms bigint) returns void language plpgsql volatile security definer
	set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
	horizon timestamptz := clock_timestamp() - greatest(retain_ms * interval '1 ms', interval '30 days');
	of_table text;
begin
	foreach of_table in array array['replay', 'redrive', 'verification'] loop
		-- created_at is the column of the index. A job that somebody resumes now is left alone.
		execute format('delete from outbox.%I d where d.id = any (array('
			'select r.id from outbox.%1$I r where r.created_at < $1 and r.noted_at < $1 and r.lease_until < $1'
			' and (r.state <> ''running''%s) order by r.created_at limit 1000 for update skip locked))',
			of_table, case of_table when 'replay' then ' or not r.by_relay' end) using horizon;
	end loop;
end
$$;

-- Fails unless this process has the replay on this server. Takes the lock that the page's snapshot must
-- come after, so that rows which upkeep moves are seen.
create function outbox.replay_guard(of_replay bigint, of_nonce bigint) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
	perform outbox.require_read_committed();
	perform outbox.timeline();
	perform from outbox.replay r where r.id = of_replay and r.nonce = of_nonce;
	if not found then
		raise exception 'replay % was taken by another process, or is not on this server', of_replay
			using errcode = 'OR001', hint = '`outbox-relay replay --list` shows who has it';
	end if;
	lock table outbox.message in access share mode;
end
$$;

-- Redrives: dead letters of a [deliver] section that a relay sends back to their topics. Kafka notes which of them went
-- back, so that any process may continue a redrive. A row here has the order, progress, lease and fence.
create table outbox.redrive (
	id bigint generated always as identity primary key,
	created_at timestamptz not null default clock_timestamp(),
	asked_by text not null default session_user,
	caller text, -- as in outbox.audit
	reason text not null,
	section text collate "C" not null,
	filter jsonb not null,              -- {"reason": "status 422"}; {}: all
	ends text not null,                 -- "0:18,3:4": later dead letters are left alone
	total bigint not null,              -- dead letters of the preview
	done bigint not null default 0,
	state text not null default 'running'
		constraint state_is_running_stopped_or_finished
		check (state in ('running', 'stopped', 'finished')),
	nonce bigint not null default 0,
	owner text not null default '',
	lease_until timestamptz not null default clock_timestamp(),
	noted_at timestamptz not null default clock_timestamp(),
	begun_at timestamptz not null default clock_timestamp(), -- of the newest run, as is the next
	begun_done bigint not null default 0,
	error text
) with (fillfactor = 50);

create index redrive_newest on outbox.redrive (created_at);
create index redrive_open on outbox.redrive (section) where state <> 'finished';

comment on table outbox.redrive is 'Redrives: orders to send dead letters of a [deliver] section back to their topics. A '
	'row is the redrive''s progress, lease and fence. It is kept as long as that of a replay.';
comment on column outbox.redrive.id is 'Number of the redrive.';
comment on column outbox.redrive.created_at is 'Time of the order.';
comment on column outbox.redrive.asked_by is 'Database user of the relay that stored the order.';
comment on column outbox.redrive.caller is 'Caller of the HTTP interface who gave the order.';
comment on column outbox.redrive.reason is 'Reason that the caller gave.';
comment on column outbox.redrive.section is 'Name of the [deliver] section.';
comment on column outbox.redrive.filter is 'Which dead letters, for example {"reason": "status 422"}. {}: all.';
comment on column outbox.redrive.ends is 'Offsets at which the redrive ends, as partition:offset, separated by commas.';
comment on column outbox.redrive.total is 'Number of dead letters that the preview counted.';
comment on column outbox.redrive.done is 'Number of dead letters that went back.';
comment on column outbox.redrive.state is 'running, stopped or finished.';
comment on column outbox.redrive.nonce is 'Random number of the current owner, which fences earlier owners.';
comment on column outbox.redrive.owner is 'Process that sends the dead letters.';
comment on column outbox.redrive.lease_until is 'End of the owner''s lease. After it another process may continue the '
	'redrive.';
comment on column outbox.redrive.noted_at is 'Time of the last update.';
comment on column outbox.redrive.begun_at is 'Time at which the newest owner began.';
comment on column outbox.redrive.begun_done is 'Number of dead letters that had gone back at that time.';
comment on column outbox.redrive.error is 'Error that ended the newest run, or that delays it.';

-- A new redrive, for the first relay that takes it.
create function outbox.redrive_create(new_reason text, new_caller text, of_section text, new_filter jsonb, new_ends text,
	rows bigint, out redrive_id bigint, out audit_id bigint) language plpgsql volatile
	set search_path = pg_catalog, pg_temp as $$
begin
	insert into outbox.redrive (reason, caller, section, filter, ends, total)
	values (new_reason, new_caller, of_section, new_filter, new_ends, rows) returning id into redrive_id;
	insert into outbox.audit (caller, verb, target, reason)
	values (new_caller, 'redrive', jsonb_build_object('section', of_section, 'redrive', redrive_id, 'filter', new_filter,
		'rows', rows), new_reason)
	returning id into audit_id;
end
$$;

-- Takes a redrive that no process has. False: another one has it, or has another redrive of the section: two at once would
-- overwrite what the other one has noted in Kafka.
create function outbox.redrive_take(of_redrive bigint, new_nonce bigint, new_owner text, lease_ms bigint) returns boolean
	language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
	of_section text := (select r.section from outbox.redrive r where r.id = of_redrive);
begin
	perform from outbox.redrive r where r.section = of_section and r.state <> 'finished' order by r.id for update;
	if exists (select from outbox.redrive r
		where r.section = of_section and r.state <> 'finished' and r.lease_until > clock_timestamp()) then
		return false;
	end if;
	update outbox.redrive r set nonce = new_nonce, owner = new_owner, begun_at = clock_timestamp(), begun_done = r.done,
		noted_at = clock_timestamp(), lease_until = clock_timestamp() + lease_ms * interval '1 ms'
		where r.id = of_redrive and r.state = 'running';
	return found;
end
$$;

-- Verifications: comparisons of the message table with its topics, which a relay makes. They only read, so the next owner of
-- one begins it again. A row here has the order, progress, lease, fence and result.
create table outbox.verification (
	id bigint generated always as identity primary key,
	created_at timestamptz not null default clock_timestamp(),
	asked_by text not null default session_user,
	caller text, -- as in outbox.audit
	reason text not null,
	publisher text collate "C" not null,
	filter jsonb not null,              -- {"from": "2026-01-02T00:00:00Z", "memory": 64}
	total bigint,                       -- an estimate until the end; null: none yet
	done bigint not null default 0,     -- rows and records read
	state text not null default 'running'
		constraint state_is_running_stopped_or_finished
		check (state in ('running', 'stopped', 'finished')),
	nonce bigint not null default 0,
	owner text not null default '',
	lease_until timestamptz not null default clock_timestamp(),
	noted_at timestamptz not null default clock_timestamp(),
	begun_at timestamptz not null default clock_timestamp(), -- of the newest run, as is the next
	begun_done bigint not null default 0,
	error text,
	result json                         -- keeps the order of its members
) with (fillfactor = 50);

create index verification_newest on outbox.verification (created_at);
create index verification_running on outbox.verification (noted_at) where state = 'running';

comment on table outbox.verification is 'Verifications: orders to compare the message table with its topics. A row is the '
	'verification''s progress, lease, fence and result. It is kept as long as that of a replay.';
comment on column outbox.verification.id is 'Number of the verification.';
comment on column outbox.verification.created_at is 'Time of the order.';
comment on column outbox.verification.asked_by is 'Database user of the relay that stored the order.';
comment on column outbox.verification.caller is 'Caller of the HTTP interface who gave the order.';
comment on column outbox.verification.reason is 'Reason that the caller gave.';
comment on column outbox.verification.publisher is 'Publisher whose messages are compared.';
comment on column outbox.verification.filter is 'Options of the order: from, to, sequence, no_duplicates and memory (MiB).';
comment on column outbox.verification.total is 'Rows and records to read: an estimate until the end. null: there is none '
	'yet.';
comment on column outbox.verification.done is 'Number of rows and records that were read.';
comment on column outbox.verification.state is 'running, stopped or finished.';
comment on column outbox.verification.nonce is 'Random number of the current owner, which fences earlier owners.';
comment on column outbox.verification.owner is 'Process that reads the table and the topics.';
comment on column outbox.verification.lease_until is 'End of the owner''s lease. After it another process may begin the '
	'verification again.';
comment on column outbox.verification.noted_at is 'Time of the last update.';
comment on column outbox.verification.begun_at is 'Time at which the newest owner began.';
comment on column outbox.verification.begun_done is 'Always 0, since each owner begins again.';
comment on column outbox.verification.error is 'Error that ended the newest run, or that delays it.';
comment on column outbox.verification.result is 'Result, as `outbox-relay verify --json` prints it. null: there is none yet.';

-- A new verification, for the first relay that takes it.
create function outbox.verification_create(new_reason text, new_caller text, of_publisher text, new_filter jsonb,
	out verification_id bigint, out audit_id bigint) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
	insert into outbox.verification (reason, caller, publisher, filter)
	values (new_reason, new_caller, of_publisher, new_filter) returning id into verification_id;
	insert into outbox.audit (caller, verb, publisher, target, reason)
	values (new_caller, 'verify', of_publisher, jsonb_build_object('verification', verification_id, 'filter', new_filter),
		new_reason)
	returning id into audit_id;
end
$$;

-- Takes a verification that no process has, and forgets the progress of earlier owners. False: another process has it.
create function outbox.verification_take(of_verification bigint, new_nonce bigint, new_owner text, lease_ms bigint)
	returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
	update outbox.verification r set nonce = new_nonce, owner = new_owner, done = 0, total = null,
		begun_at = clock_timestamp(), noted_at = clock_timestamp(),
		lease_until = clock_timestamp() + lease_ms * interval '1 ms'
		where r.id = of_verification and r.state = 'running' and r.lease_until <= clock_timestamp();
	return found;
end
$$;
