-- How many rows the default partition holds, counted up to a hundred thousand.
select count(*) from (select from outbox.message_default limit 100000) d;
