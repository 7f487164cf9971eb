-- $1 publisher text, $2 from xid xid8
select l.seen, l.version, l.has_rows from outbox.look($1::text, $2::text::xid8) l
