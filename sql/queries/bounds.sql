-- $1 publisher text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 tick bigint, $6 from xid, text or null,
-- $7 xids bigint, $8 max rows bigint
select low_xid::text, sure_xid::text, upto::text, stragglers, low_id, high_id, listed, next_xid::text, over,
	least_id, last_id
from outbox.window_bounds($1::text, $2::int, $3::bigint, $4::bigint, $5::bigint, $6::text::xid8, $7::bigint,
	$8::bigint)
