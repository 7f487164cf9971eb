-- $1 publisher text, $2 shard int, $3 shards int, $4 n bigint, $5 nonce bigint, $6 tick bigint,
-- $7 from xid, text or null, $8 xids bigint, $9 max rows bigint
select low_xid::text, sure_xid::text, upto::text, stragglers, low_id, high_id, listed, next_xid::text, over,
	least_id, last_id
from outbox.window_bounds($1::text, $2::int, $3::int, $4::bigint, $5::bigint, $6::bigint,
	$7::text::xid8, $8::bigint, $9::bigint)
