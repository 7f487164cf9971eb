-- Adds a row of an order that no function of the schema carries out. $1 caller text, $2 verb text, $3 publisher text,
-- $4 target jsonb, $5 reason text.
insert into outbox.audit (caller, verb, publisher, target, reason)
values ($1::text, $2::text, $3::text, $4::jsonb, $5::text) returning id
