-- The id of each message of the bench, and its number, which its payload begins with: {"n":1000000007
select m.id, substr(m.payload, 6, 10)::bigint - 1000000000 from outbox.message m order by m.id desc
