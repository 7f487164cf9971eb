-- The search for new rows that an owner makes after the snapshot has changed.
-- $1 publisher text, $2 n bigint, $3 may list boolean
select t.verdict from outbox.tick(of_publisher => $1::text, of_shard => 0, of_shards => 1,
	of_n => $2::bigint, of_nonce => 0, new_nonce => 0, lease_ms => 10000, closed => 0,
	new_acked_id => 0, touched => '{}', new_epoch => null, may_open => true, must_write => false,
	max_rows => 1000, max_bytes => 1000000, last_seen => null, parks => null,
	may_list => $3::boolean, batch => 500) t
