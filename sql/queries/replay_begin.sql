-- Opens the transaction in which the rows of a filter are counted: that may take long. The lock comes before
-- the snapshots, so that rows which upkeep moves are seen once.
begin read only;
set local statement_timeout = 0;
set local jit = off;
lock table outbox.message in access share mode;
