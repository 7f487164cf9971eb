alter table outbox.message enable trigger outbox_bell
