-- $1 name text, $2 ids bytea[]
select outbox.processed_remove($1::text, $2::bytea[])
