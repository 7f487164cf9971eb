-- $1 name text
select outbox.archive_detach($1::text)
