select last_id, kept_id, increment, cache from outbox.message_ids()
