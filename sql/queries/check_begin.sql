-- Opens the transaction in which a business is called, as one script. :access is `read only` or `read write`;
-- :limit_ms is the remaining time of the request, after which the server cancels the statement. :idle_limit_ms is
-- longer: it ends the transaction of a relay that has died, never that of a request whose time has just run out.
-- Any search_path: the session is not ours.
begin transaction :access;
set local statement_timeout = :limit_ms;
set local idle_in_transaction_session_timeout = :idle_limit_ms;
