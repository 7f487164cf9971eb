select publisher, elsewhere, rows, identity from outbox.rebase_plan()
