#include "script.h"

#include <string.h>

#include "text.h"

static const struct script_place *find_script_place(
    const struct script_place *places, const char *name, size_t length)
{
	for (; places->name; places++)
		if (strlen(places->name) == length && strncmp(places->name, name, length) == 0)
			return places;
	return NULL;
}

char *script_fill(const char *sql, const struct script_place *places)
{
	struct text script = {0};

	while (*sql) {
		size_t plain = strcspn(sql, ":");
		text_append(&script, sql, plain);
		sql += plain;
		/* Two colons are a cast, and never a place. */
		size_t colons = strspn(sql, ":");
		size_t name = strspn(sql + colons, "abcdefghijklmnopqrstuvwxyz_");
		const struct script_place *place =
		    colons == 1 ? find_script_place(places, sql + 1, name) : NULL;
		if (place)
			text_addf(&script, place->bare ? "%s" : "'%s'", place->value);
		else
			text_append(&script, sql, colons + name);
		sql += colons + name;
	}
	return script.data ? script.data : xformat("%s", "");
}
