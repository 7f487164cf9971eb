-- Pauses or resumes a section. $1 its name text, $2 pauses boolean, $3 is it in the configuration boolean, $4 process
-- text, $5 reason text, $6 caller text
select changed, audit from outbox.deliver_order($1::text, $2::boolean, $3::boolean, $4::text, $5::text, $6::text)
