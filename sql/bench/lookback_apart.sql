-- How many were decided a second or more after they were prepared. $1 type text
select count(*) from outbox.lookback l
where l.kind = 'decision' and l.biz_type = $1::text
	and l.decided_at >= l.prepared_at + interval '1 second'
