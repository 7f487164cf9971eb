-- $1 slot text, $2 shard int, $3 nonce bigint, $4 owner text, $5 lease in ms bigint, $6 fresh epoch bigint
select outcome, n, epoch, first_tick, acked_id, windows, destinations::text, shards, holder, wait_ms
from outbox.take($1::text, $2::int, $3::bigint, $4::text, $5::bigint, $6::bigint)
