-- Opens the transaction for backlog.sql: the rows it looks for are few behind many published ones.
begin read only;
set local jit = off;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
