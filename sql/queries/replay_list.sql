-- 'interrupted': running, and its process did not renew the lease.
select id, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as created_at, asked_by,
	coalesce(reason, '') as reason, publisher, filter::text as filter, coalesce(target, '') as target,
	case when state = 'running' and lease_until <= clock_timestamp() then 'interrupted'
		else state end as state, done, total, last_id, upto_id, owner
from outbox.replay order by id
