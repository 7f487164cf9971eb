-- A writer that does not come to its end.
begin;
insert into outbox.message (topic, payload) values ('never-published', 'x');
