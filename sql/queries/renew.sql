-- $1 publisher text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 new nonce bigint, $6 lease in ms bigint,
-- $7 deaths int[] or null, $8 from xid xid8, null: does not look
-- With a look in front of this transaction, as in look.sql.
select outbox.renew($1::text, $2::int, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::int[]),
	l.seen, l.version, l.has_rows
from outbox.look($1::text, $8::text::xid8) l
