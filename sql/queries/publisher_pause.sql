-- Pauses a publisher, or resumes it: the id of the audit's row, or null if nothing changed. $1 publisher text,
-- $2 pauses boolean, $3 reason text, $4 caller text.
select outbox.publisher_pause($1::text, $2::boolean, $3::text, $4::text)
