-- Topics that the publisher published to and closed. $1 publisher text, $2 topics bigint
insert into outbox.destination (publisher, shard, topic, partitions, offsets, open, n)
select $1::text, 0, 'topic-' || t, 12, array_fill(t, array[12]), false, 0
from generate_series(1, $2::bigint) t
