-- Takes the shard, like an owner that starts. The second column is the time in the server so far, in us.
-- $1 publisher text
select t.outcome, (extract(epoch from clock_timestamp() - statement_timestamp()) * 1000000)::bigint
from outbox.take($1::text, 0, 1, 0, 'bench', 3600000, 1) t
