-- Ends what session_transaction.sql has opened: after an error the server rolls back instead.
-- Any search_path: the session has not been set up.
commit
