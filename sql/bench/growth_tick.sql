-- An owner's tick that lists due rows, or else writes a log row. The second column is the time in the server
-- so far, in us.
-- $1 publisher text, $2 closed windows int, $3 may list boolean, $4 destinations jsonb, $5 fold boolean
select t.verdict, (extract(epoch from clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
	t.id, t.topic, t.key, t.payload
from outbox.tick(of_publisher => $1::text, of_shard => 0, of_shards => 1,
	of_n => (select max(l.n) from outbox.log l where l.publisher = $1::text and l.shard = 0), of_nonce => 0,
	new_nonce => 0, lease_ms => 3600000, closed => $2::int, new_acked_id => 0, touched => $4::jsonb,
	new_epoch => null, may_open => false, must_write => not $3::boolean, max_rows => 500,
	max_bytes => 10000000, last_seen => null, parks => null, may_list => $3::boolean, batch => 500,
	fold_to => case when $5::boolean then (select max(l.n) + 1 from outbox.log l
		where l.publisher = $1::text and l.shard = 0) end) t
