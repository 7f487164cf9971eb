-- $1 slot text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 tick bigint
select low_xid::text, sure_xid::text, upto::text, stragglers, low_id, high_id, listed
from outbox.window_bounds($1::text, $2::int, $3::bigint, $4::bigint, $5::bigint)
