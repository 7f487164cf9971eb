-- Opens the transaction for backlogs.sql: it looks for few rows behind many published ones.
begin read only;
-- queries of the log must not wait for a lock on the message table
set local lock_timeout = '500ms';
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
