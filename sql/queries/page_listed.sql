-- A page of a listed window, as one script (see page.sql): :slot :shard :n :nonce; its ids :listed;
-- :after id; :rows at most.
set local statement_timeout = 0;
do $$ begin perform outbox.window_guard(:slot, :shard, :n, :nonce); end $$;
copy (
	select p.id, p.created_at, p.event_id, p.topic, p.key, p.payload, p.headers, p.partition
	from outbox.parked p
	where p.slot = :slot and p.id = any (:listed::bigint[]) and p.id > :after
	order by p.id limit :rows
) to stdout (format binary)
