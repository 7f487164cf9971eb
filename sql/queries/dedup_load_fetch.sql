-- :batch rows.
-- Any search_path: the session is not ours.
fetch forward :batch from outbox_load
