-- What goes with a slot, counted up to 100,000 each; how many other slots there are, and whether it is there.
-- $1 slot text
select (select count(*) from outbox.slot s where s.name <> $1::text) as others,
	(select count(*) from (select from outbox.parked p where p.slot = $1::text
		and p.tick >= 0 limit 100000) l) as parked,
	(select count(*) from (select from outbox.scheduled p where p.slot = $1::text
		and p.tick >= 0 limit 100000) l)
		as scheduled,
	exists (select from outbox.slot s where s.name = $1::text)::int as there
