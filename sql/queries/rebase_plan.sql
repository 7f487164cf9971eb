select slot, elsewhere, rows from outbox.rebase_plan()
