-- The sessions that hold a lock of upkeep, and the work of each lock.
select h.work, case when h.pid is null then 'a prepared transaction'
	else format('pid %s, user %s, application_name "%s"', h.pid, h.user_name, h.application_name) end as holder
from outbox.upkeep_holders() h
