-- The columns of :query, which is inserted as it is, on its own line because it may end in a comment.
-- Any search_path: the session is not ours.
select * from (
:query
) as given limit 0
