-- $1 id bigint
select publisher, filter::text, target, rate, snapshot::text, shards, acked::text, windows::text,
	acked_ids::text, upto_id, last_id, total, done, state
from outbox.replay where id = $1::bigint
