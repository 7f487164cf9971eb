-- Tables of the bench: a plain table with the columns of messages, and rows to be changed in the same transaction.
create table outbox.bench_plain (
	txid xid8 not null default pg_current_xact_id(),
	id bigint generated always as identity primary key,
	created_at timestamptz not null default clock_timestamp(),
	event_id uuid not null default gen_random_uuid(),
	topic text not null,
	key bytea,
	payload bytea,
	headers json,
	partition int,
	deliver_at timestamptz
);
create table outbox.bench_order (id bigint primary key, changes bigint not null default 0)
	with (fillfactor = 50);
insert into outbox.bench_order (id) select generate_series(0, 9999);
-- outbox.publish as it would be if it knew no unique keys.
create function outbox.bench_publish(topic text, key text, payload text, headers json default null,
	event_id uuid default null, deliver_at timestamptz default null)
	returns uuid language plpgsql as $$
begin
	event_id := coalesce(bench_publish.event_id, outbox.new_event_id());
	insert into outbox.message (event_id, topic, key, payload, headers, deliver_at)
	values (bench_publish.event_id, bench_publish.topic, bench_publish.key, bench_publish.payload,
		bench_publish.headers, bench_publish.deliver_at);
	return bench_publish.event_id;
end $$;
