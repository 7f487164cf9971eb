-- Closes it.
rollback;
