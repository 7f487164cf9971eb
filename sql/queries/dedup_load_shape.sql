-- The columns of :query, which is put in as it is; a line of its own, since it may end in a comment.
-- Any search_path: the session is not ours.
select * from (
:query
) as given limit 0
