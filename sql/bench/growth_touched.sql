-- The largest change of destinations in a log row: progress in 41 topics with 12 partitions.
select jsonb_object_agg('topic-' || t, jsonb_build_array(12,
	(select jsonb_object_agg(p, t) from generate_series(0, 11) p)))
from generate_series(1, 41) t
