truncate outbox.parked, outbox.parked_request
