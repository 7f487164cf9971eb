-- $1 publisher text, $2 shard int, $3 shards int, $4 nonce bigint, $5 owner text, $6 lease in ms bigint,
-- $7 fresh epoch bigint
select outcome, n, epoch, first_tick, acked_id, windows, holder, wait_ms,
	former_epoch, listed_tick, parked, scheduled, requests, identity::text,
	deaths, alone_deaths, paused, paused_topics::text
from outbox.take($1::text, $2::int, $3::int, $4::bigint, $5::text, $6::bigint, $7::bigint)
