-- The columns of :query, which is put in as it is; a line of its own, since it may end in a comment.
select * from (
:query
) as given limit 0
