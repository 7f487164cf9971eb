-- Whether the schema's name needs no quotes: it is put into texts as it is.
select quote_ident('outbox') = 'outbox';
