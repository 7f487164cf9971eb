#include "schema_query.h"
#include "schema_text.h"
#include "text.h"

struct pg_result *schema_query(struct pg *pg, const char *schema, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	owned_text char *text = schema_text(sql, schema);
	return pg_query(pg, text, params, count, err);
}

int schema_publisher_shards(const struct pg_result *publishers, const char *name)
{
	enum { NAME, SHARDS };
	for (int i = 0; i < pg_rows(publishers); i++)
		if (text_equal(pg_value(publishers, i, NAME), name))
			return (int)pg_int(publishers, i, SHARDS);
	return 0;
}
