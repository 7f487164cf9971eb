-- oldest-program: 0.1.0
--
-- The message table. Insert-only: rows are removed with their partition. The database sets the columns
-- that order messages (txid, id, created_at); writers are granted the others (roles.sql).

-- outbox.message has base types only, which every driver knows. Its rules are in one trigger and not in constraints:
-- the server reads and plans a table's constraints anew for every INSERT, which costs about as much as the insert
-- itself, while PL/pgSQL keeps the plans of a trigger for the session.
--
-- The journal of the look-back (0010_lookback.sql) has domains with the same rules.

create domain outbox.topic_name as text collate "C" constraint topic_is_a_kafka_topic_name check (
	value !~ '[^A-Za-z0-9._-]' and length(value) between 1 and 249 and value not in ('.', '..'));
comment on domain outbox.topic_name is 'Name of a Kafka topic: 1 to 249 characters of A-Z, a-z, 0-9, ".", "_" and '
	'"-", but neither "." nor "..".';

-- Headers are {"name": value, ...} or, since Kafka's repeat, [["name", value], ...]. A value is a
-- string, number, boolean or null, or {"base64": "..."} for bytes.
-- Paths are strict: a lax one would unwrap an array where none is allowed.
--
-- The type is json and not jsonb: a publisher reads the stored text, while the server would print jsonb for each row. If
-- an object repeats a name, the last value counts, as in jsonb: for the paths below, and for the publisher.
--
-- Names that begin with outbox- are reserved for the relay. One of them is stored: a first pair
-- outbox-lookback marks a message that the look-back itself wrote (outbox.lookback_decide), and the
-- publisher trusts it. So only the owner of the tables may write it, and neither the roles of the writers
-- nor that of the relay.
create function outbox.headers_valid(headers json) returns boolean
	immutable strict parallel safe language plpgsql as $$
declare
	as_text pg_catalog.text := headers::pg_catalog.text;
	parsed pg_catalog.jsonb;
	kind pg_catalog.text;
	broken pg_catalog.text;
begin
	-- Most headers have no relay names and only plain values. A regular expression sees that in a tenth of the
	-- paths' time. It has no backslash, since a setting of the session decides what a backslash means. The text is valid
	-- JSON: an object without another bracket has plain values.
	if pg_catalog.octet_length(as_text) operator(pg_catalog.<=) 32768
		and pg_catalog.strpos(as_text, 'outbox-') operator(pg_catalog.=) 0
		and pg_catalog.strpos(as_text, pg_catalog.chr(92)) operator(pg_catalog.=) 0
		and (as_text collate pg_catalog."C" operator(pg_catalog.~) '^[{][^][{}]*[}]$'
			or as_text collate pg_catalog."C" operator(pg_catalog.~)
				'^[[]([[]"[^"]*", *("[^"]*"|[-+.0-9a-zA-Z]*)[]](, *)?)*[]]$')
	then
		return true;
	end if;

	if pg_catalog.octet_length(as_text) operator(pg_catalog.<=) 32768 then
		parsed := headers::pg_catalog.jsonb;
	end if;
	kind := pg_catalog.jsonb_typeof(parsed);
	broken := case
		when parsed is null then 'headers_fit_32768_bytes'
		when parsed operator(pg_catalog.@?) 'strict $.keyvalue() ? (@.key starts with "outbox-")'
			or parsed operator(pg_catalog.@?) 'strict $[*][0] ? (@ starts with "outbox-")'
				and ((parsed operator(pg_catalog.#>>) '{0,0}' operator(pg_catalog.=) 'outbox-lookback') is not true
					or (parsed operator(pg_catalog.-) 0)
						operator(pg_catalog.@?) 'strict $[*][0] ? (@ starts with "outbox-")'
					or not pg_catalog.pg_has_role(current_user, (select c.relowner from pg_catalog.pg_class c
						where c.oid operator(pg_catalog.=) 'outbox.message'::pg_catalog.regclass), 'USAGE'))
			then 'header_names_beginning_with_outbox_are_reserved' end;
	if broken is not null then
		raise exception 'value for message headers violates check constraint "%"', broken
			using errcode = 'check_violation', constraint = broken, hint = case
				when broken operator(pg_catalog.=) 'headers_fit_32768_bytes' then 'move data into the payload'
				else 'the relay writes the headers outbox-...: choose another name' end;
	end if;
	return case
	when kind operator(pg_catalog.=) 'object' then not parsed operator(pg_catalog.@?) 'strict $.keyvalue().value ? (
		@.type() == "array" || @.type() == "object" && (!exists(@.keyvalue()) ||
			exists(@.keyvalue() ? (@.key != "base64" || @.value.type() != "string" || !(@.value
			like_regex "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")))))'
	when kind operator(pg_catalog.=) 'array' then not parsed operator(pg_catalog.@?) 'strict $[*] ? (
		@.type() != "array" || @.size() != 2 || @[0].type() != "string" || @[1].type() == "array" ||
		@[1].type() == "object" && (!exists(@[1].keyvalue()) ||
			exists(@[1].keyvalue() ? (@.key != "base64" || @.value.type() != "string" || !(@.value
			like_regex "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")))))'
	else false end;
end $$;

-- One constraint for all rules of headers, because each constraint slows down every INSERT. Its error
-- has the name of the broken rule.
create domain outbox.message_headers as json
	constraint headers_are_an_object_or_an_array_of_pairs check (outbox.headers_valid(value));
comment on domain outbox.message_headers is 'Headers of a message, as in outbox.message.headers.';

create domain outbox.message_key as bytea
	constraint key_fits_8192_bytes check (octet_length(value) <= 8192);
comment on domain outbox.message_key is 'Key of a message: at most 8192 bytes.';
create domain outbox.message_payload as bytea;
comment on domain outbox.message_payload is 'Payload of a message: at most outbox.max_message_bytes().';

-- The published bytes of a text, in UTF-8, whatever the encoding of the database.
create function outbox.published_bytes(as_text text, as_bytes bytea) returns bytea
	stable parallel safe language sql as $$
	select coalesce(as_bytes, pg_catalog.convert_to(as_text, 'UTF8'))
$$;
comment on function outbox.published_bytes(text, bytea) is 'Returns the bytes that are published for a text column '
	'and its binary column: the bytes, or else the text in UTF-8.';

-- The largest payload in bytes. outbox.set_max_message_bytes replaces this function. It is stable and not
-- immutable: then a plan depends on it, and open sessions notice the new one.
create function outbox.max_message_bytes() returns bigint stable parallel safe language sql as $$
	select 1000000::pg_catalog.int8
$$;
comment on function outbox.max_message_bytes() is 'Returns the maximum size of a payload in bytes. '
	'outbox.set_max_message_bytes changes it.';

-- Changes the largest payload without a lock on a table. Existing rows are not checked again. Key and headers
-- are limited as well, so that a topic with Kafka's default max.message.bytes accepts a row of the default
-- size.
create function outbox.set_max_message_bytes(bytes bigint) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
	if bytes is null or bytes not between 1 and 1000000000 then
		raise exception 'max_message_bytes must lie between 1 and 1000000000'
			using errcode = 'invalid_parameter_value';
	end if;
	execute format('create or replace function outbox.max_message_bytes() returns bigint '
		'stable parallel safe language sql as $body$select %s::pg_catalog.int8$body$', bytes);
	if exists (select from pg_catalog.pg_constraint where conname = 'message_fits_max_message_bytes'
		and contypid = 'outbox.message_payload'::regtype) then
		alter domain outbox.message_payload drop constraint message_fits_max_message_bytes;
	end if;
	execute format('alter domain outbox.message_payload add constraint '
		'message_fits_max_message_bytes check (octet_length(value) <= %s) not valid', bytes);
end $$;
comment on function outbox.set_max_message_bytes(bigint) is 'Changes the maximum size of a payload, 1 to 1000000000 '
	'bytes. It locks no table and does not check existing rows. Only the owner of the schema can call it.';

select outbox.set_max_message_bytes(1000000);

-- Immutable, since a database keeps its encoding: plans hold the answer.
create function outbox.encoding_is_utf8() returns boolean immutable parallel safe language sql as $$
	select pg_catalog.getdatabaseencoding() operator(pg_catalog.=) 'UTF8'
$$;

-- The length of a text in UTF-8. Only for databases of other encodings: a text that cannot be converted is refused
-- here, since a publisher could never send it.
create function outbox.utf8_length(as_text text) returns int stable parallel safe language plpgsql as $$
begin
	return pg_catalog.octet_length(pg_catalog.convert_to(as_text, 'UTF8'));
exception when character_not_in_repertoire or untranslatable_character then
	raise exception 'a text of this message cannot be published as UTF-8: %', sqlerrm
		using errcode = 'check_violation', constraint = 'text_is_published_as_utf8', table = 'message',
			hint = 'write text in the encoding of the database, and bytes to key_bytes or payload_bytes';
end $$;

-- A driver that sends bytes as text, or a cast, turns them into hexadecimal digits. Consumers would get these
-- digits. The regular expression comes second: it copies the whole text.
create function outbox.is_hex_of_bytes(as_text text) returns boolean immutable parallel safe language plpgsql as $$
begin
	return pg_catalog.starts_with(as_text collate pg_catalog."C", pg_catalog.chr(92) operator(pg_catalog.||) 'x')
		and pg_catalog.substr(as_text, 3) collate pg_catalog."C" operator(pg_catalog.~) '^([0-9A-Fa-f]{2})*$';
end $$;

-- Raises an error for a message that breaks a rule. The error has the rule's name as its constraint. The look-back
-- sets outbox.payload_was_checked for messages that it took when the limit may have been another.
create function outbox.message_rules(topic text, key text, payload text, key_bytes bytea, payload_bytes bytea,
	headers json, partition int, deliver_at timestamptz, table_schema text) returns void
	stable parallel safe language plpgsql as $$
declare
	key_length pg_catalog.int4 := coalesce(pg_catalog.octet_length(key_bytes),
		case when outbox.encoding_is_utf8() then pg_catalog.octet_length(key) else outbox.utf8_length(key) end);
	payload_length pg_catalog.int4 := coalesce(pg_catalog.octet_length(payload_bytes),
		case when outbox.encoding_is_utf8() then pg_catalog.octet_length(payload) else outbox.utf8_length(payload) end);
	broken pg_catalog.text := case
		when topic collate pg_catalog."C" operator(pg_catalog.~) '[^A-Za-z0-9._-]'
			or topic collate pg_catalog."C" operator(pg_catalog.=) any (array['', '.', '..'])
			or pg_catalog.octet_length(topic) operator(pg_catalog.>) 249 then 'topic_is_a_kafka_topic_name'
		when key is not null and key_bytes is not null then 'key_is_text_or_bytes'
		when payload is not null and payload_bytes is not null then 'payload_is_text_or_bytes'
		when key_length operator(pg_catalog.>) 8192 then 'key_fits_8192_bytes'
		when payload_length operator(pg_catalog.>) outbox.max_message_bytes()
			and pg_catalog.current_setting('outbox.payload_was_checked', true) operator(pg_catalog.=) 'on' is not true
			then 'message_fits_max_message_bytes'
		when outbox.is_hex_of_bytes(key) then 'key_is_not_hex_of_bytes'
		when outbox.is_hex_of_bytes(payload) then 'payload_is_not_hex_of_bytes'
		when partition operator(pg_catalog.<) 0 then 'partition_is_not_negative'
		when not pg_catalog.isfinite(deliver_at) then 'deliver_at_must_be_finite'
		when not outbox.encoding_is_utf8() and outbox.utf8_length(headers::pg_catalog.text) operator(pg_catalog.<) 0
			or not outbox.headers_valid(headers) then 'headers_are_an_object_or_an_array_of_pairs' end;
begin
	if broken is not null then
		raise exception 'new row for relation "message" violates check constraint "%"', broken
			using errcode = 'check_violation', constraint = broken, table = 'message', schema = table_schema,
				hint = case
				when broken operator(pg_catalog.=) 'key_is_text_or_bytes' then 'write either key or key_bytes'
				when broken operator(pg_catalog.=) 'payload_is_text_or_bytes' then
					'write either payload or payload_bytes'
				when broken operator(pg_catalog.=) 'message_fits_max_message_bytes' then
					'outbox.set_max_message_bytes(N) changes the largest payload'
				when broken operator(pg_catalog.=) 'key_is_not_hex_of_bytes' then
					'bytes came as text: write them to key_bytes and a payload to payload_bytes, '
					'or cast the argument of outbox.publish: $2::bytea'
				when broken operator(pg_catalog.=) 'payload_is_not_hex_of_bytes' then
					'bytes came as text: write them to payload_bytes, '
					'or cast the argument of outbox.publish: $3::bytea'
				when broken operator(pg_catalog.=) 'topic_is_a_kafka_topic_name' then
					'a topic has 1 to 249 characters of A-Z, a-z, 0-9, ".", "_" and "-", and is not "." or ".."'
				when broken operator(pg_catalog.=) 'key_fits_8192_bytes' then
					'shorten the key: it may have 8192 bytes as UTF-8'
				when broken operator(pg_catalog.=) 'partition_is_not_negative' then
					'write null to choose the partition by the key'
				when broken operator(pg_catalog.=) 'deliver_at_must_be_finite' then
					'write null to publish at once'
				else 'write {"name": value} or [["name", value], ...]; a value is a string, number, boolean, null, '
					'or {"base64": "..."} for bytes; all of it can be converted to UTF-8' end;
	end if;
end $$;

-- The first condition accepts a usual row, and costs a fifth of all rules. This function has no variables, because
-- PL/pgSQL copies them for each row. 92 is the backslash with which hexadecimal digits of bytes begin.
--
-- A row of another transaction is a copy, as of a partition that was moved: it was checked when it was written,
-- perhaps against other limits.
create function outbox.message_check() returns trigger language plpgsql as $$
begin
	if (not outbox.encoding_is_utf8()
			or new.topic collate pg_catalog."C" operator(pg_catalog.~) '[^A-Za-z0-9._-]'
			or pg_catalog.octet_length(new.topic) operator(pg_catalog.<) 3
			or pg_catalog.octet_length(new.topic) operator(pg_catalog.>) 249
			or pg_catalog.octet_length(new.key) operator(pg_catalog.>) 8192
			or pg_catalog.ascii(new.key) operator(pg_catalog.=) 92
			or pg_catalog.octet_length(new.payload) operator(pg_catalog.>) outbox.max_message_bytes()
			or pg_catalog.ascii(new.payload) operator(pg_catalog.=) 92
			or pg_catalog.num_nonnulls(new.key_bytes, new.payload_bytes, new.headers, new.partition,
				new.deliver_at) operator(pg_catalog.>) 0)
		and new.txid operator(pg_catalog.=) pg_catalog.pg_current_xact_id()
	then
		perform outbox.message_rules(new.topic, new.key, new.payload, new.key_bytes, new.payload_bytes, new.headers,
			new.partition, new.deliver_at, tg_table_schema);
	end if;
	return new;
end $$;

-- A new event id is a UUID of version 7: it begins with the time, by which outbox.message_state_of finds the row. The
-- rest is of random(), which each session seeds from a strong source. If sessions call setseed(), the process id and the
-- microsecond keep their ids apart. It takes less time than gen_random_uuid().
create function outbox.new_event_id() returns uuid volatile parallel restricted language plpgsql as $$
begin
	return ('0' operator(pg_catalog.||) pg_catalog.to_hex(((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())
			operator(pg_catalog.*) 1000)::pg_catalog.int8 operator(pg_catalog.<<) 16)
			operator(pg_catalog.|) (28672
				operator(pg_catalog.+) (pg_catalog.random() operator(pg_catalog.*) 4095)::pg_catalog.int4))
		operator(pg_catalog.||) pg_catalog.to_hex(pg_catalog.hashint8extended(
				(pg_catalog.random() operator(pg_catalog.*) 4503599627370496)::pg_catalog.int8
					operator(pg_catalog.#) pg_catalog.pg_backend_pid() operator(pg_catalog.#) (pg_catalog.date_part('epoch',
						pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1000000)::pg_catalog.int8,
				(pg_catalog.random() operator(pg_catalog.*) 4503599627370496)::pg_catalog.int8)
			operator(pg_catalog.&) 4611686018427387903 operator(pg_catalog.|) (-9223372036854775808)))::pg_catalog.uuid;
end $$;
comment on function outbox.new_event_id() is 'Returns a new event id: a version 7 UUID, which begins with the time.';

-- The bucket of a key, from which its shard follows (outbox.bucket_shard). The hash is that of hash partitions: it is
-- the same in all versions of PostgreSQL, works in FIPS mode, and takes a twentieth of the time of MD5 or SHA-256. It
-- depends on the byte order of the server, which a rebase checks (outbox.publisher.hashed).
--
-- Two keys with the same published bytes are one key. So the second branch must return what hashtext returns for these
-- bytes: hash_array adds 31 to the hash of its only element.
create function outbox.bucket_of(key text, key_bytes bytea) returns smallint
	immutable parallel safe language plpgsql as $$
begin
	if key is not null and key_bytes is null and outbox.encoding_is_utf8() then
		return (pg_catalog.hashtext(key collate pg_catalog."C") operator(pg_catalog.&) 32767)::pg_catalog.int2;
	elsif key is null and key_bytes is null then
		return 0;
	end if;
	return ((pg_catalog.hash_array(array[outbox.published_bytes(key, key_bytes)])::pg_catalog.int8
		operator(pg_catalog.-) 31) operator(pg_catalog.&) 32767)::pg_catalog.int2;
end $$;
comment on function outbox.bucket_of(text, bytea) is 'Returns the bucket of a message by its columns key and key_bytes: '
	'15 bits of a hash of the published bytes. Without a key it is 0.';

create table outbox.message (
	txid       xid8        not null default pg_current_xact_id(),
	id         bigint      generated always as identity (cache 1),
	created_at timestamptz not null default clock_timestamp(),
	event_id   uuid        not null default outbox.new_event_id(),
	topic      text collate "C" not null,
	key        text,
	payload    text,
	headers    json,
	partition  int,
	deliver_at timestamptz,
	key_bytes     bytea,
	payload_bytes bytea,
	-- Generated and not set by the trigger below, which does not fire for replicated rows or when it is disabled: each
	-- row must have the bucket of its key.
	bucket smallint not null generated always as (outbox.bucket_of(key, key_bytes)) stored,
	primary key (id, bucket, created_at)
) partition by range (created_at);

-- Both indexes hold the bucket. A shard reads a range of ids or transactions and of buckets: the server compares the
-- buckets inside the index and does not read the rows of other shards.
create index on outbox.message (txid, id, bucket);
create trigger message_check before insert on outbox.message for each row execute function outbox.message_check();

-- A reader takes lz4 values several times faster than pglz ones; servers have it from 14 on, when
-- they are built with it. As a text, since 13 would not read the block otherwise.
do $$
begin
	if exists (select from pg_catalog.pg_settings
		where name = 'default_toast_compression' and 'lz4' = any (enumvals)) then
		execute 'alter table outbox.message alter column payload set compression lz4, '
			'alter column payload_bytes set compression lz4';
	end if;
end $$;

comment on table outbox.message is 'The messages to publish: one row is one Kafka record. Write it with '
	'outbox.publish() or INSERT, in the transaction of the change that it describes, and after that change.';
comment on column outbox.message.txid is 'Id of the top-level transaction that wrote the row, never of a savepoint. '
	'The database sets it.';
comment on column outbox.message.id is 'Number of the message, from a sequence. Messages of one window are published '
	'in its order. The database sets it.';
comment on column outbox.message.created_at is 'Time of the INSERT by the server''s clock. The table is partitioned '
	'by it. The database sets it.';
comment on column outbox.message.event_id is 'Id of the message, sent as the header outbox-id.';
comment on column outbox.message.topic is 'Kafka topic: 1 to 249 characters of A-Z, a-z, 0-9, ".", "_" and "-", but '
	'neither "." nor "..".';
comment on column outbox.message.key is 'Key as text, published as UTF-8; at most 8192 bytes. A message without key '
	'and key_bytes goes to any partition and has no order.';
comment on column outbox.message.payload is 'Payload as text, published as UTF-8. A message without payload and '
	'payload_bytes is a tombstone.';
comment on column outbox.message.headers is '{"name": value} or [["name", value], ...]; null: none. A value is a '
	'string, number, boolean or null, or {"base64": "..."} for bytes. Names that begin with outbox- are reserved for '
	'the relay. At most 32768 bytes as text.';
comment on column outbox.message.partition is 'Partition of the topic. null: chosen by the key, as Kafka''s Java '
	'client does.';
comment on column outbox.message.deliver_at is 'The message is not published before this time. null: it is published '
	'at once.';
comment on column outbox.message.key_bytes is 'Binary key, instead of key.';
comment on column outbox.message.payload_bytes is 'Binary payload, instead of payload.';
comment on column outbox.message.bucket is 'Hash of the key, from which the shard of the message follows '
	'(outbox.bucket_shard). The database sets it.';

-- Takes the rows that fit into no other partition, so that an insert never fails. Normally empty.
create table outbox.message_default
	(like outbox.message including all excluding identity excluding comments)
	with (autovacuum_freeze_min_age = 0, toast.autovacuum_freeze_min_age = 0);
-- the range of no other partition has such a time
alter table outbox.message_default
	add constraint created_at_is_finite check (isfinite(created_at));
alter table outbox.message attach partition outbox.message_default default;

-- outbox-relay made this table before it applied this file.
comment on table outbox.migration is 'The migrations that were applied (`outbox-relay migrate status`).';
comment on column outbox.migration.name is 'Name of the file.';
comment on column outbox.migration.version is 'Its number. 0: it is applied again whenever it changes.';
comment on column outbox.migration.checksum is 'SHA-256 of the file.';
comment on column outbox.migration.oldest_program is 'Oldest program version that works with the schema after this '
	'migration.';
comment on column outbox.migration.program is 'Program version that applied it.';
comment on column outbox.migration.applied_at is 'Time at which it was applied.';
comment on column outbox.migration.applied_by is 'Database user who applied it.';
