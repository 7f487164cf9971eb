-- tick.sql on a server that may not be the one that the log row was written on: a row that was carried
-- here from another cluster counts as missing.
select *
from outbox.tick($1, $2, $5, (select l.n from outbox.log l
	where l.publisher = $1::text and l.shard = $2::int and l.n = $3::bigint and l.nonce = $4::bigint
		and l.xmin = l.txid::xid), $4, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
	$19, $20, $21, $22)
