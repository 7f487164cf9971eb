-- The transaction in which ids are read. It writes nothing, whatever the query calls; all rows are
-- wanted, so that a plan that gives the first of them soon is no better.
-- Any search_path: the session is not ours.
begin transaction read only;
set local bytea_output = 'hex';
set local cursor_tuple_fraction = 1;
set local idle_in_transaction_session_timeout = 0;
