-- The same for a script: its statements are one transaction already, which a BEGIN in it makes an explicit one.
-- Any search_path: the session has not been set up.
set transaction isolation level read committed, not deferrable
