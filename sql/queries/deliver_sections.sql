-- Sections that a process runs, or that are paused: section, since when it is paused, and the processes as JSON.
select s.name, to_char(s.paused_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as paused_at,
	coalesce(p.processes, '[]') as processes
from outbox.deliver_section s cross join lateral (
	select jsonb_agg(jsonb_build_object('name', d.process, 'url', a.url,
		'seen_at', to_char(d.seen_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) order by d.process) as processes
	from outbox.deliver_process d left join outbox.process a on a.name = d.process
	where d.section = s.name and d.seen_at > statement_timestamp() - interval '10 minutes') p
where s.paused_at is not null or p.processes is not null
order by s.name
