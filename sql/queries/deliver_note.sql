-- Notes that this process runs the sections. $1 their names text[], $2 the process text
select outbox.deliver_note($1::text[], $2::text)
