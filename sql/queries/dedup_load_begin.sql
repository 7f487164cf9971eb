-- Opens the transaction in which ids are read. It is read-only, whatever the query calls. All rows are
-- wanted, so a plan that returns the first rows early has no advantage.
-- Any search_path: the session is not ours.
begin transaction read only;
set local bytea_output = 'hex';
set local cursor_tuple_fraction = 1;
set local idle_in_transaction_session_timeout = 0;
