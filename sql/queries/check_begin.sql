-- Opens the transaction in which a business is asked, as one script: :access is `read only` or `read write`,
-- :limit_ms what is left of the request's time, so that the server ends by itself what overruns.
-- Any search_path: the session is not ours.
begin transaction :access;
set local statement_timeout = :limit_ms;
set local idle_in_transaction_session_timeout = :limit_ms;
