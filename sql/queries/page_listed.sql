-- A page of a listed window, as one script (see page.sql): :publisher :shard :n :nonce; its ids :listed;
-- :after id; :rows at most.
set local statement_timeout = :limit;
set local lock_timeout = 0;
do $$ begin perform outbox.window_guard(:publisher, :shard, :n, :nonce); end $$;
copy (
	select r.id, r.created_at, r.event_id, r.topic, r.key, case when not :withheld then r.payload end,
		case when not :withheld then r.headers end, r.partition, r.deliver_at,
		null::bytea, null::bytea -- its key and payload are bytes
	from outbox.listed_rows(:publisher, :listed::bigint[]) r
	where r.id > :after order by r.id limit :rows
) to stdout (format binary)
