-- The first message of a session fills its plans and caches. Nothing is written.
begin;
select outbox.publish('never-published', 'k', 'x');
rollback;
