-- oldest-program: 0.1.0
--
-- outbox.publish: one message in the caller's transaction, as the caller. The three differ in the
-- payload's type only; a literal of unknown type is text. A null payload is a tombstone.
-- In plpgsql because that keeps the plan of its insert for the session; a function in SQL makes it
-- anew at each call.

create function outbox.publish(topic text, key text, payload bytea, headers jsonb default null,
	event_id uuid default gen_random_uuid(), deliver_at timestamptz default null)
	returns uuid language plpgsql as $$
begin
	insert into outbox.message (event_id, topic, key, payload, headers, deliver_at)
	values (publish.event_id, publish.topic, pg_catalog.convert_to(publish.key, 'UTF8'),
		publish.payload, publish.headers, publish.deliver_at);
	return publish.event_id;
end $$;

create function outbox.publish(topic text, key text, payload text, headers jsonb default null,
	event_id uuid default gen_random_uuid(), deliver_at timestamptz default null)
	returns uuid language plpgsql as $$
begin
	insert into outbox.message (event_id, topic, key, payload, headers, deliver_at)
	values (publish.event_id, publish.topic, pg_catalog.convert_to(publish.key, 'UTF8'),
		pg_catalog.convert_to(publish.payload, 'UTF8'), publish.headers, publish.deliver_at);
	return publish.event_id;
end $$;

create function outbox.publish(topic text, key text, payload jsonb, headers jsonb default null,
	event_id uuid default gen_random_uuid(), deliver_at timestamptz default null)
	returns uuid language plpgsql as $$
begin
	insert into outbox.message (event_id, topic, key, payload, headers, deliver_at)
	values (publish.event_id, publish.topic, pg_catalog.convert_to(publish.key, 'UTF8'),
		pg_catalog.convert_to(publish.payload::pg_catalog.text, 'UTF8'), publish.headers, publish.deliver_at);
	return publish.event_id;
end $$;
