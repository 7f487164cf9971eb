-- $1 id bigint, $2 file text
select outbox.archive_drop($1::bigint, $2::text)
