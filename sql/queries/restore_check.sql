-- $1 id bigint
select outbox.restore_check($1::bigint)
