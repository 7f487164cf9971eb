-- Opens a transaction of ours in a session that others use as well. The isolation that database and role
-- choose is overridden here: a transaction that has begun no longer takes them from a setting.
-- Any search_path: the session has not been set up.
begin isolation level read committed not deferrable
