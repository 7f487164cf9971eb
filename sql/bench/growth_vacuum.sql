vacuum (analyze) outbox.destination, outbox.scheduled, outbox.parked
