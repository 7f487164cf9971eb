-- :batch rows.
fetch forward :batch from outbox_load
