-- A page of the partitions that have rows which were parked because the partition stalled (-1: the topic was
-- missing). Kafka may hold some of these rows. $1 publisher text, $2 shard int, $3 n bigint, $4 nonce bigint, $5 after topic text,
-- null: from the first on, $6 after partition int, $7 most int.
select topic, partition
from outbox.parked_places($1::text, $2::int, $3::bigint, $4::bigint, $5::text, $6::int, $7::int)
