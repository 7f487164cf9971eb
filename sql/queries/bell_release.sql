-- $1 the table's oid as an int
select pg_advisory_unlock($1, 1)
