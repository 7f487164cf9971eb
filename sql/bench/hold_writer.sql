-- A writer that does not commit.
begin;
insert into outbox.message (topic, payload) values ('never-published', 'x');
