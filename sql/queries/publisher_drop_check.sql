-- The rows that are dropped with a publisher, counted up to a bound each; the number of other publishers; whether the
-- publisher exists.
-- $1 publisher text, $2 bound int
select (select count(*) from outbox.publisher s where s.name <> $1::text) as others,
	(select count(*) from (select from outbox.parked p where p.publisher = $1::text
		and p.tick >= 0 limit $2::int) l) as parked,
	(select count(*) from (select from outbox.scheduled p where p.publisher = $1::text
		and p.tick >= 0 limit $2::int) l)
		as scheduled,
	exists (select from outbox.publisher s where s.name = $1::text)::int as there
