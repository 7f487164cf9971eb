-- The verifications that no process has. The one that failed last comes last, so that it does not hold up others.
select id, publisher, filter::text from outbox.verification
where state = 'running' and lease_until <= clock_timestamp() order by noted_at, id
