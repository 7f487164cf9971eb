-- $1 id bigint, $2 table text, $3 how long to keep it, in ms bigint
select outbox.restore_end($1::bigint, $2::text, $3::bigint * interval '1 ms')
