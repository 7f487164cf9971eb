-- How many rows the default partition holds, counted up to a hundred thousand.
-- $1 table text
select outbox.partition_default_rows($1::text, 100000);
