select version, name, checksum, oldest_program, program,
	to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as applied_at, applied_by
from outbox.migration order by version = 0, version, name;
