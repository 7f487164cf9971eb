-- How many shards of a slot have an owner.
-- $1 slot text
select count(*) from outbox.progress p
where p.slot = $1::text and p.lease_until > clock_timestamp()
