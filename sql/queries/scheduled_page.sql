-- A page of scheduled rows in the order of deliver_at and id. $1 publisher text, $2 after deliver_at timestamptz,
-- $3 after id bigint, $4 to timestamptz: without it, $5 topic text, $6 key bytea (null: any), $7 rows wanted bigint,
-- $8 rows examined bigint. The last examined row is returned as well, with meant false if the conditions exclude
-- it: the next page goes on behind it.
with looked as (
	select c.*, row_number() over (order by c.deliver_at, c.id) as place
	from outbox.publisher s cross join lateral outbox.shard_numbers(s.shards) n (shard) cross join lateral (
		select q.id, q.deliver_at, q.topic, q.key, q.partition, q.event_id, q.created_at, q.was_id
		from outbox.scheduled q
		where q.publisher = s.name and q.shard = n.shard and q.tick >= 0
			and (q.deliver_at, q.id) > ($2::timestamptz, $3::bigint) and q.deliver_at < $4::timestamptz
		order by q.deliver_at, q.id limit $8::bigint) c
	where s.name = $1::text
	order by c.deliver_at, c.id limit $8::bigint
), judged as (
	select l.*, ($5::text is null or l.topic = $5::text) and ($6::bytea is null or l.key = $6::bytea) is true as meant
	from looked l
)
select j.id, to_char(j.deliver_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as deliver_at, j.topic,
	encode(j.key, 'hex') as key, j.partition, j.event_id,
	to_char(j.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as created_at, j.was_id,
	j.meant, j.place = $8::bigint as is_last,
	(extract(epoch from j.deliver_at) * 1000000)::bigint as deliver_us
from judged j where j.meant or j.place = $8::bigint
order by j.place limit $7::bigint
