-- Records for an id that were refused because a different one had come first. $1 type text, $2 id text.
select to_char(c.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at, c.kept, c.refused,
	c.source, c.who, c.source_partition, c.source_offset
from outbox.lookback_conflict c where c.biz_type = $1::text and c.biz_id = $2::text order by c.id limit 100
