#include "live_database.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "migrate.h"
#include "pg.h"

enum { PATIENCE_MS = 30000 };

/* The server's own database, in which the others are made and dropped. */
static bool run_on_server(const char *statement, struct err *err)
{
	OWNED(owned_pg_destroy)
	struct pg *pg = pg_connect(getenv("TEST_DATABASE_URL"), "test", PATIENCE_MS, err);
	return pg && pg_script_alone(pg, statement, err);
}

static char *address_of_database(const char *name)
{
	const char *server = getenv("TEST_DATABASE_URL");
	return xformat("%.*s/%s", (int)(strrchr(server, '/') - server), server, name);
}

static bool create_from(const char *name, const char *original, struct err *err)
{
	owned_text char *statement = xformat("create database %s template %s", name, original);
	return run_on_server(statement, err);
}

/* Returns its name; nobody may be connected to it when it is copied. */
static const char *migrated_database(const char *schema, struct err *err)
{
	static char *migrated;
	if (migrated)
		return migrated;

	const struct migrate_options options = {.schema = schema, .no_roles = true};
	char *name = xformat("live_%d", (int)getpid());
	owned_text char *address = address_of_database(name);
	if (create_from(name, "template1", err)) {
		OWNED(owned_pg_destroy)
		struct pg *pg = pg_connect(address, "test", PATIENCE_MS, err);
		if (pg && migrate_up(pg, &options, err))
			migrated = name;
	}
	return migrated;
}

char *live_database_make(const char *schema)
{
	static int number;
	struct err err = {0};
	owned_text char *name = xformat("live_%d_%d", (int)getpid(), ++number);
	const char *original = migrated_database(schema, &err);

	if (original && create_from(name, original, &err))
		return address_of_database(name);
	print_error("%s\n", err.message);
	return NULL;
}

void live_database_drop(char *address)
{
	struct err err = {0};
	if (!address)
		return;

	owned_text char *statement =
	    xformat("drop database %s with (force)", strrchr(address, '/') + 1);
	if (!run_on_server(statement, &err))
		print_error("%s\n", err.message);
	free(address);
}
