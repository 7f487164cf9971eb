-- $1 topic text
select from outbox.message m where m.topic = $1::text limit 1
