-- $1 the table's oid as an int
select pg_try_advisory_lock($1, 1)
