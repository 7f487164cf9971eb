-- The redrives that no process has, of sections that no process sends dead letters of.
select r.id, r.section, r.filter::text, r.ends, r.total, r.done from outbox.redrive r
where r.state = 'running' and not exists (select from outbox.redrive o
	where o.section = r.section and o.state <> 'finished' and o.lease_until > clock_timestamp())
order by r.id
