/*
 * Any text is a configuration or one line that says what is wrong with it. Lines that begin with
 * '$' go into the environment, the others are the file. What is accepted can be compared with
 * itself without a difference.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "config.h"

enum { MOST_VARIABLES = 15 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_accepted(const struct config *config)
{
	struct text fixed = {0};

	/* one that only delivers needs no database, and has no publisher of its own */
	require(config->publisher_count > 0 || config->deliver_count > 0);
	for (int i = 0; i < config->deliver_count; i++)
		require(config->delivers[i].kafka && config->delivers[i].origin);
	for (int i = 0; i < config->publisher_count; i++) {
		const struct config_publisher *publisher = &config->publishers[i];
		require(config_find_publisher(config, publisher->settings.name) == publisher);
		require(config_find_postgres(config, publisher->settings.postgres->name) ==
			publisher->settings.postgres);
		require(publisher->settings.kafka && publisher->origin);
	}
	config_compare(config, config, &fixed);
	require(fixed.length == 0);
	text_finish(&fixed);
}

static void check_refused(const struct err *err)
{
	require(err->kind == ERR_CONFIG);
	require(err->message[0] && !strpbrk(err->message, "\r\n"));
}

/* A *_file key may name only what is never there: relative to a directory that does not exist. */
static bool reads_a_file(const char *text)
{
	return strcasestr(text, "_file") && strchr(text, '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = memcpy(xcalloc(size + 1, 1), data, size);
	char *variables[MOST_VARIABLES + 1] = {"CREDENTIALS_DIRECTORY=/nonexistent"};
	char *rest = text, *line;
	struct text ini = {0};
	struct config *config = NULL;
	struct err err = {0};
	int count = 1;

	if (reads_a_file(text))
		rest = NULL;
	while ((line = strsep(&rest, "\n"))) {
		if (*line == '$' && count < MOST_VARIABLES)
			variables[count++] = line + 1;
		else
			text_addf(&ini, "%s\n", line);
	}
	config = config_parse("relay.ini", text_string(&ini), variables, &err);
	if (config)
		check_accepted(config);
	else
		check_refused(&err);
	config_destroy(config);
	text_finish(&ini);
	free(text);
	return 0;
}
