-- oldest-program: 0.1.0
--
-- outbox.publish: one message in the caller's transaction, as the caller. Untyped arguments and all string types are
-- text. A key or payload of another type is bytea, or is written as text: json, jsonb, integers, uuid. A null payload
-- is a tombstone. In plpgsql because that keeps the plan of its insert for the session; a function in SQL makes it
-- anew at each call.

create function outbox.publish(topic text, key text, payload text, headers json default null,
	event_id uuid default null, deliver_at timestamptz default null, unique_key text default null,
	within interval default '24 hours', while_pending text default null)
	returns uuid language plpgsql as $$
begin
	event_id := coalesce(publish.event_id, outbox.new_event_id());
	if publish.unique_key is not null then
		return outbox.publish_unique(topic, key, null, payload, null, headers, event_id, deliver_at, unique_key, within,
			while_pending, false);
	end if;
	insert into outbox.message (event_id, topic, key, payload, headers, deliver_at)
	values (publish.event_id, publish.topic, publish.key, publish.payload, publish.headers, publish.deliver_at);
	return publish.event_id;
end $$;
comment on function outbox.publish(text, text, text, json, uuid, timestamptz, text, interval, text) is 'Writes a message in the '
	'transaction of the caller and returns its event id. A key or payload may be text, bytea, json, jsonb, uuid, an '
	'integer or numeric type, or another scalar type: bytea is published as it is, every other value as its text. '
	'Arrays, rows, ranges, dates, times, intervals and domains over bytea are refused: cast them. A null payload is '
	'a tombstone. Only an INSERT can set `partition`. With a unique key that another message of the topic has, it '
	'returns the event id of that message and writes nothing.';

-- Types of arguments that need no further look.
create function outbox.publishable_types() returns regtype[] immutable parallel safe language sql as $$
	select '{pg_catalog.text,pg_catalog.bytea,pg_catalog.jsonb,pg_catalog.json,pg_catalog.varchar,pg_catalog.uuid,'
		'pg_catalog.int2,pg_catalog.int4,pg_catalog.int8,pg_catalog.numeric}'::pg_catalog.regtype[]
$$;

-- Refuses types whose text an application does not mean: '{1,2}' of an array, '(1,2)' of a row, dates, whose text is a
-- setting of the session, and domains over bytea, which the functions below do not know.
create function outbox.check_publishable(type regtype, argument text) returns void
	stable parallel safe language plpgsql as $$
declare
	category pg_catalog."char";
	base pg_catalog.oid;
begin
	select t.typcategory, t.typbasetype into category, base
		from pg_catalog.pg_type t where t.oid operator(pg_catalog.=) type;
	if base operator(pg_catalog.=) 'pg_catalog.bytea'::pg_catalog.regtype::pg_catalog.oid
		or category operator(pg_catalog.=) any ('{A,C,D,P,R,T}'::pg_catalog."char"[])
	then
		raise exception 'outbox.publish does not take a % of type %', argument, type
			using errcode = 'datatype_mismatch', hint = pg_catalog.format('cast it to text, jsonb or bytea; for JSON of '
				'an array or a row: to_jsonb(%s)', argument);
	end if;
end $$;

-- The same for the other types. Only the functions with json headers may be called without headers, or two functions
-- would match such a call.
do $$
declare
	key_type text;
	payload_type text;
	headers_type text;
	-- two of key, key_bytes, payload and payload_bytes are null
	write text := '
		if publish.unique_key is not null then
			return outbox.publish_unique(topic, %1$s, %2$s, %3$s, %4$s, publish.headers::pg_catalog.json, event_id,
				deliver_at, unique_key, within, while_pending, false);
		end if;
		insert into outbox.message (event_id, topic, key, key_bytes, payload, payload_bytes, headers, deliver_at)
		values (publish.event_id, publish.topic, %1$s, %2$s, %3$s, %4$s, publish.headers::pg_catalog.json,
			publish.deliver_at);';
	as_text text[] := array['publish.key::pg_catalog.text', 'publish.payload::pg_catalog.text'];
	as_bytes text[] := array['publish.key', 'publish.payload'];
begin
	foreach key_type in array array['text', 'anyelement'] loop
		foreach payload_type in array array['text', 'anycompatible'] loop
			foreach headers_type in array array['json', 'jsonb', 'text'] loop
				continue when key_type = 'text' and payload_type = 'text' and headers_type = 'json';
				execute format('create function outbox.publish(topic text, key %s, payload %s, headers %s,
	event_id uuid default null, deliver_at timestamptz default null, unique_key text default null,
	within interval default ''24 hours'', while_pending text default null)
	returns uuid language plpgsql as $body$
begin
	event_id := coalesce(publish.event_id, outbox.new_event_id());', key_type, payload_type,
					headers_type || case when headers_type = 'json' then ' default null' else '' end)
				|| case when key_type = 'text' and payload_type = 'text' then
					format(write, as_text[1], 'null', as_text[2], 'null') || '
	return publish.event_id;
end ' else '
	if pg_catalog.pg_typeof(publish.key) operator(pg_catalog.<>) all (outbox.publishable_types())
		or pg_catalog.pg_typeof(publish.payload) operator(pg_catalog.<>) all (outbox.publishable_types())
	then
		perform outbox.check_publishable(pg_catalog.pg_typeof(publish.key), ''key'');
		perform outbox.check_publishable(pg_catalog.pg_typeof(publish.payload), ''payload'');
	end if;
	if pg_catalog.pg_typeof(publish.key) operator(pg_catalog.=) ''pg_catalog.bytea''::pg_catalog.regtype
		and pg_catalog.pg_typeof(publish.payload) operator(pg_catalog.=) ''pg_catalog.bytea''::pg_catalog.regtype
	then' || format(write, 'null', as_bytes[1], 'null', as_bytes[2]) || '
	elsif pg_catalog.pg_typeof(publish.key) operator(pg_catalog.=) ''pg_catalog.bytea''::pg_catalog.regtype then'
					|| format(write, 'null', as_bytes[1], as_text[2], 'null') || '
	elsif pg_catalog.pg_typeof(publish.payload) operator(pg_catalog.=) ''pg_catalog.bytea''::pg_catalog.regtype then'
					|| format(write, as_text[1], 'null', 'null', as_bytes[2]) || '
	else' || format(write, as_text[1], 'null', as_text[2], 'null') || '
	end if;
	return publish.event_id;
end ' end || '$body$';
				execute format('comment on function outbox.publish(text, %s, %s, %s, uuid, timestamptz, text, interval, '
					'text) is %L', key_type, payload_type, headers_type, obj_description('outbox.publish(text, text, text, '
						'json, uuid, timestamptz, text, interval, text)'::regprocedure, 'pg_proc'));
			end loop;
		end loop;
	end loop;
end $$;
