-- How many shards of a publisher have an owner.
-- $1 publisher text
select count(*) from outbox.progress p
where p.publisher = $1::text and p.lease_until > clock_timestamp()
