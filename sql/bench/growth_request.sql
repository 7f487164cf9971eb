-- Stores the request of `parked skip --all` or `parked retry --all`. $1 publisher text, $2 verb text
insert into outbox.parked_request (id, publisher, shard, verb, filter, about)
values (1, $1::text, 0, $2::text, '{}', 0)
