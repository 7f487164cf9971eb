-- $1 the table's oid as an int
-- Whether no writer of an earlier sleep is in its transaction. Alone, before bell_try: a writer that this refuses the
-- ring tests the bell once more, and must get it. While another process sleeps, its writers must not meet the probe.
select case when pg_try_advisory_xact_lock_shared($1, 1)
	then pg_try_advisory_xact_lock($1, 2) and pg_try_advisory_xact_lock($1, 3) else false end
