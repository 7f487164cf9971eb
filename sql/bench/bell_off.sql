alter table outbox.message disable trigger outbox_bell
