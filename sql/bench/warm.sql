-- What a session keeps from its first message: plans and caches. Nothing is written.
begin;
select outbox.publish('never-published', 'k', 'x');
rollback;
