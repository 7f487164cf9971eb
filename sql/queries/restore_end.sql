-- $1 id bigint, $2 how long to keep it, in ms bigint
select outbox.restore_end($1::bigint, $2::bigint * interval '1 ms')
