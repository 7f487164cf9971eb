-- $1 the table's oid as an int
-- Whether no writer of an earlier sleep is in its transaction. Alone, before bell_try: a writer that this refuses the
-- ring tests the bell once more, and must get it.
select pg_try_advisory_xact_lock($1, 2) and pg_try_advisory_xact_lock($1, 3)
