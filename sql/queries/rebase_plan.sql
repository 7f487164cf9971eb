select slot, elsewhere, rows, identity from outbox.rebase_plan()
