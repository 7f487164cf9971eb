-- Makes the rows of the sections that this process runs. $1 their names text[]
select outbox.deliver_note($1::text[])
