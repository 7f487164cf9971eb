-- What `parked skip --all` stores. $1 slot text
insert into outbox.parked_request (id, slot, shard, verb, filter, about)
values (1, $1::text, 0, 'skip', '{}', 0)
