-- A rebase reads the whole message table.
begin isolation level read committed;
set local statement_timeout = 0;
