-- The replays that a relay has to carry out and that no process has.
select id, publisher from outbox.replay
where state = 'running' and by_relay and lease_until <= clock_timestamp() order by id
