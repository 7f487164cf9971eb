-- A message for each partition of each topic. $1 prefix text, $2 last topic int, $3 last partition int
insert into outbox.message (topic, key, partition, payload)
select $1::text || '-' || t, t || '/' || p, p, 'x'
from generate_series(0, $2::int) t cross join generate_series(0, $3::int) p
