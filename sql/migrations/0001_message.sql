-- oldest-program: 0.1.0
--
-- The message table. Insert-only: rows leave with their partition. The columns that order messages
-- (txid, id, created_at) are the database's; writers are granted the others (roles.sql).

-- A constraint's expression is read and planned again at each INSERT, an SQL function inlined in it:
-- all of them together cost as much as the insert itself. So they are few and short, and what needs
-- more than a comparison is in plpgsql functions, whose own expressions are kept by the session.

create function outbox.topic_valid(topic text) returns boolean
	immutable parallel safe language plpgsql as $$
begin
	return topic !~ '[^A-Za-z0-9._-]' and length(topic) between 1 and 249 and topic not in ('.', '..');
end $$;

-- What a row may weigh is the constant of a function, so that it can be changed without a lock on the
-- table. Rows that are there already are not looked at again.
create function outbox.set_max_message_bytes(bytes bigint) returns void language plpgsql as $$
begin
	if bytes is null or bytes not between 1 and 1000000000 then
		raise exception 'max_message_bytes must lie between 1 and 1000000000'
			using errcode = 'invalid_parameter_value';
	end if;
	execute format('create or replace function '
		'outbox.message_fits(payload bytea, key bytea, headers jsonb) returns boolean '
		'immutable parallel safe language plpgsql as %L', format('begin
	return coalesce(octet_length(payload), 0)::bigint + coalesce(octet_length(key), 0)
		+ coalesce(octet_length(headers::text), 0) <= %s;
end', bytes));
end $$;

select outbox.set_max_message_bytes(1000000);

-- Headers are {"name": value, …} or, since Kafka's repeat, [["name", value], …]. A value is a
-- string, number, boolean or null, or {"base64": "…"} for bytes.
-- Paths are strict: a lax one would unwrap an array where none is allowed. Reserved names are refused
-- under a name of their own.
create function outbox.headers_valid(headers jsonb) returns boolean
	immutable strict parallel safe language plpgsql as $$
begin
	if headers @? 'strict $.keyvalue() ? (@.key starts with "outbox-")'
		or headers @? 'strict $[*][0] ? (@ starts with "outbox-")' then
		raise exception 'header names that begin with outbox- are the relay''s'
			using errcode = 'check_violation', schema = 'outbox', table = 'message',
				constraint = 'header_names_beginning_with_outbox_are_reserved';
	end if;
	return case jsonb_typeof(headers)
	when 'object' then not headers @? 'strict $.keyvalue().value ? (
		@.type() == "array" || @.type() == "object" && (!exists(@.keyvalue()) ||
			exists(@.keyvalue() ? (@.key != "base64" || @.value.type() != "string" || !(@.value
			like_regex "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")))))'
	when 'array' then not headers @? 'strict $[*] ? (
		@.type() != "array" || @.size() != 2 || @[0].type() != "string" || @[1].type() == "array" ||
		@[1].type() == "object" && (!exists(@[1].keyvalue()) ||
			exists(@[1].keyvalue() ? (@.key != "base64" || @.value.type() != "string" || !(@.value
			like_regex "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")))))'
	else false end;
end $$;

create table outbox.message (
	txid       xid8        not null default pg_current_xact_id(),
	id         bigint      generated always as identity (cache 1),
	created_at timestamptz not null default clock_timestamp(),
	event_id   uuid        not null default gen_random_uuid(),
	topic      text        not null collate "C",
	key        bytea,
	payload    bytea,
	headers    jsonb,
	partition  int,
	deliver_at timestamptz,
	primary key (id, created_at),
	constraint topic_is_a_kafka_topic_name check (outbox.topic_valid(topic)),
	constraint headers_are_an_object_or_an_array_of_pairs check (outbox.headers_valid(headers)),
	constraint message_fits_max_message_bytes check (outbox.message_fits(payload, key, headers)),
	constraint id_is_positive_and_partition_not_negative check (id > 0 and partition >= 0),
	constraint deliver_at_must_be_null_until_scheduling_exists check (deliver_at is null)
) partition by range (created_at);

create index on outbox.message (txid, id);

-- A reader takes lz4 values several times faster than pglz ones; servers have it from 14 on, when
-- they are built with it. As a text, since 13 would not read the block otherwise.
do $$
begin
	if exists (select from pg_catalog.pg_settings
		where name = 'default_toast_compression' and 'lz4' = any (enumvals)) then
		execute 'alter table outbox.message alter column payload set compression lz4';
	end if;
end $$;

comment on table outbox.message is 'One row is one Kafka record. Write it with outbox.publish() or '
	'INSERT, in the transaction that it speaks of and after the row that it speaks of.';
comment on column outbox.message.txid is 'the writing transaction (never a savepoint''s)';
comment on column outbox.message.event_id is 'sent as the header outbox-id';
comment on column outbox.message.key is 'null: any partition, no order';
comment on column outbox.message.payload is 'null: a tombstone';
comment on column outbox.message.partition is 'null: chosen by the key, as Kafka''s Java client does';

-- Takes what no other partition does, so that an insert never fails. Normally empty.
create table outbox.message_default
	(like outbox.message including all excluding identity excluding comments)
	with (autovacuum_freeze_min_age = 0, toast.autovacuum_freeze_min_age = 0);
-- no other one's range holds such a time
alter table outbox.message_default
	add constraint created_at_is_finite check (isfinite(created_at));
alter table outbox.message attach partition outbox.message_default default;
