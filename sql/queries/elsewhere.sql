-- Was the publisher's log, or were rows of the message table, carried here from another database cluster?
-- $1 publisher text
select outbox.has_rows_of_the_future() or exists (select from outbox.progress p
	where p.publisher = $1::text and p.written_elsewhere)
