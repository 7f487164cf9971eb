-- $1 id bigint, $2 table text
select outbox.restore_check($1::bigint, $2::text)
