-- The chosen rows by state. $1 publisher text, $2 chosen jsonb.
select p.state, count(*) from outbox.parked p
where p.publisher = $1::text and p.tick >= 0
	and outbox.parked_is(p.id, p.topic, p.key, p.error, p.parked_at, p.state, $2::jsonb)
group by p.state
