-- A page of the digests of all queues, in their order. $1 publisher text, $2 shard int, $3 n bigint, $4 nonce bigint,
-- $5 from digest bigint, $6 most int.
select digest from outbox.parked_digests($1::text, $2::int, $3::bigint, $4::bigint, $5::bigint, $6::int) digest
