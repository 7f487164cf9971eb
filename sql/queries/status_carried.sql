-- Were rows of the message table carried here from another database cluster?
select outbox.has_rows_of_the_future()
