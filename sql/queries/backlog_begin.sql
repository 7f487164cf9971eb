-- Opens the transaction for backlog.sql: the rows it looks for are few behind many published ones.
begin read only;
-- what the log needs must not wait for a lock on the message table
set local lock_timeout = '500ms';
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
