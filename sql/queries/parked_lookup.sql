-- Which of these records are parked, or have a parked key. $1 publisher text, $2 shard int, $3 n bigint,
-- $4 nonce bigint, $5 ids bigint[], null: the row is not parked itself, $6 digests bigint[], null: it has no key,
-- $7 event ids uuid[].
select place, itself from outbox.parked_lookup($1, $2, $3, $4, $5, $6, $7::uuid[])
