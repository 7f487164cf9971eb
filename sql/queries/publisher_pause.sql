-- Pauses a publisher, or resumes it, or one topic of it: the id of the audit's row, or null if nothing changed.
-- $1 publisher text, $2 pauses boolean, $3 reason text, $4 caller text, $5 topic text; null: the whole publisher.
select case when $5::text is null then outbox.publisher_pause($1::text, $2::boolean, $3::text, $4::text)
	else outbox.publisher_pause_topic($1::text, $5::text, $2::boolean, $3::text, $4::text) end
