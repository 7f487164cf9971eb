-- Notes the URL of this process. $1 name text, $2 URL text.
select outbox.process_note($1::text, $2::text)
