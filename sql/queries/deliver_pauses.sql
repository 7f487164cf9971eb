-- The sections of a process, once a second. $1 their names text[]
select s.name, to_char(s.paused_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), s.orders
from outbox.deliver_section s where s.name = any ($1::text[])
