-- oldest-program: 0.1.0
--
-- The message table. Insert-only: rows leave with their partition. The columns that order messages
-- (txid, id, created_at) are the database's; writers are granted the others (roles.sql).

-- Programs check texts as UTF-8 before they acknowledge them. Another encoding would refuse some of
-- these texts later, and jsonb takes escapes such as \u00e9 in UTF8 only. This file is ASCII, so that
-- every database can read it.
do $$
begin
	if current_setting('server_encoding') <> 'UTF8' then
		raise exception 'the database has the encoding %, and needs UTF8', current_setting('server_encoding')
			using hint = 'create a database with ENCODING ''UTF8'' TEMPLATE template0, and copy your tables into it';
	end if;
end $$;

-- What must hold for one column is a domain's constraint: the server keeps it parsed, while a table's
-- is read and planned anew by every INSERT, which for all of these cost more than the insert itself.
-- Functions called by constraints are in plpgsql: one in SQL would be planned anew as well.

create domain outbox.topic_name as text collate "C" constraint topic_is_a_kafka_topic_name check (
	value !~ '[^A-Za-z0-9._-]' and length(value) between 1 and 249 and value not in ('.', '..'));

create domain outbox.partition_number as int
	constraint partition_is_not_negative check (value >= 0);

create domain outbox.delivery_time as timestamptz
	constraint deliver_at_must_be_finite check (isfinite(value));

-- Headers are {"name": value, ...} or, since Kafka's repeat, [["name", value], ...]. A value is a
-- string, number, boolean or null, or {"base64": "..."} for bytes.
-- Paths are strict: a lax one would unwrap an array where none is allowed.
--
-- Names that begin with outbox- are the relay's. One of them is stored: a first pair outbox-lookback marks a
-- message that the look-back itself wrote (outbox.lookback_decide), and the publisher trusts it. So only the
-- owner of the tables may write it: not the roles of the writers, nor that of the relay.
create function outbox.headers_valid(headers jsonb) returns boolean
	immutable strict parallel safe language plpgsql as $$
declare
	kind pg_catalog.text := pg_catalog.jsonb_typeof(headers);
	broken pg_catalog.text := case
		when pg_catalog.octet_length(headers::pg_catalog.text) operator(pg_catalog.>) 32768 then 'headers_fit_32768_bytes'
		when headers operator(pg_catalog.@?) 'strict $.keyvalue() ? (@.key starts with "outbox-")'
			or headers operator(pg_catalog.@?) 'strict $[*][0] ? (@ starts with "outbox-")'
				and ((headers operator(pg_catalog.#>>) '{0,0}' operator(pg_catalog.=) 'outbox-lookback') is not true
					or (headers operator(pg_catalog.-) 0)
						operator(pg_catalog.@?) 'strict $[*][0] ? (@ starts with "outbox-")'
					or not pg_catalog.pg_has_role(current_user, (select c.relowner from pg_catalog.pg_class c
						where c.oid operator(pg_catalog.=) 'outbox.message'::pg_catalog.regclass), 'USAGE'))
			then 'header_names_beginning_with_outbox_are_reserved' end;
begin
	if broken is not null then
		raise exception 'value for message headers violates check constraint "%"', broken
			using errcode = 'check_violation', constraint = broken;
	end if;
	return case
	when kind operator(pg_catalog.=) 'object' then not headers operator(pg_catalog.@?) 'strict $.keyvalue().value ? (
		@.type() == "array" || @.type() == "object" && (!exists(@.keyvalue()) ||
			exists(@.keyvalue() ? (@.key != "base64" || @.value.type() != "string" || !(@.value
			like_regex "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")))))'
	when kind operator(pg_catalog.=) 'array' then not headers operator(pg_catalog.@?) 'strict $[*] ? (
		@.type() != "array" || @.size() != 2 || @[0].type() != "string" || @[1].type() == "array" ||
		@[1].type() == "object" && (!exists(@[1].keyvalue()) ||
			exists(@[1].keyvalue() ? (@.key != "base64" || @.value.type() != "string" || !(@.value
			like_regex "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")))))'
	else false end;
end $$;

-- One constraint for all that can be wrong with headers, since each costs every INSERT something. It
-- refuses under the name that explains.
create domain outbox.message_headers as jsonb
	constraint headers_are_an_object_or_an_array_of_pairs check (outbox.headers_valid(value));

create domain outbox.message_key as bytea
	constraint key_fits_8192_bytes check (octet_length(value) <= 8192);
create domain outbox.message_payload as bytea;

-- What a payload may weigh. A domain's constraint is changed without a lock on the table, and rows
-- that are there already are not looked at again. Key and headers are bounded as well, so that a row
-- of the usual size is one that a topic with Kafka's usual max.message.bytes takes.
create function outbox.set_max_message_bytes(bytes bigint) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
	if bytes is null or bytes not between 1 and 1000000000 then
		raise exception 'max_message_bytes must lie between 1 and 1000000000'
			using errcode = 'invalid_parameter_value';
	end if;
	if exists (select from pg_catalog.pg_constraint where conname = 'message_fits_max_message_bytes'
		and contypid = 'outbox.message_payload'::regtype) then
		alter domain outbox.message_payload drop constraint message_fits_max_message_bytes;
	end if;
	execute format('alter domain outbox.message_payload add constraint '
		'message_fits_max_message_bytes check (octet_length(value) <= %s) not valid', bytes);
end $$;

select outbox.set_max_message_bytes(1000000);

create table outbox.message (
	txid       xid8        not null default pg_current_xact_id(),
	id         bigint      generated always as identity (cache 1),
	created_at timestamptz not null default clock_timestamp(),
	event_id   uuid        not null default gen_random_uuid(),
	topic      outbox.topic_name not null,
	key        outbox.message_key,
	payload    outbox.message_payload,
	headers    outbox.message_headers,
	partition  outbox.partition_number,
	deliver_at outbox.delivery_time,
	primary key (id, created_at)
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
comment on column outbox.message.deliver_at is 'null: at once; else not before this time';

-- Takes what no other partition does, so that an insert never fails. Normally empty.
create table outbox.message_default
	(like outbox.message including all excluding identity excluding comments)
	with (autovacuum_freeze_min_age = 0, toast.autovacuum_freeze_min_age = 0);
-- no other one's range holds such a time
alter table outbox.message_default
	add constraint created_at_is_finite check (isfinite(created_at));
alter table outbox.message attach partition outbox.message_default default;
