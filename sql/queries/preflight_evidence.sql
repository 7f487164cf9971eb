-- Which evidence of another server is used: false where the server refused the function. Fails where the server
-- refuses a function that is used.
select outbox.timeline() >= 0 as by_timeline, outbox.system_identifier() >= 0 as by_system_identifier;
