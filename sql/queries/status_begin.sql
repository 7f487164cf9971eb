-- Opens the transaction of one part of `status`: a table that stays locked makes its numbers unknown.
begin read only;
set local lock_timeout = '500ms';
-- the planner takes each bound for the number of rows: compiling the query takes longer than the query
set local jit = off;
