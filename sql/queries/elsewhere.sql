-- Was the slot's log, or were rows of the message table, carried here from another database cluster?
-- $1 slot text
select outbox.has_rows_of_the_future() or exists (select from outbox.progress p
	where p.slot = $1::text and p.written_elsewhere)
