/*
 * rules_driver PATH LINE…: rules for a test that is written in Python. PATH with a blank is the
 * line of a store. Arguments user=…, content=…, channel=… and zone=… before the lines are settings.
 * Reads commands, one a line, and answers each with one line, at once:
 *
 *   check OFFSET:TIME:KEY…  the verdicts: pass drop dead-letter; again: it was recorded before
 *   partition NUMBER        ok; the partition of the messages that follow; 0 at the beginning
 *   change LINE<tab>LINE…   ok; the rules have these lines now
 *   checkpoint OFFSET       ok
 *   stats                   name=number …
 *
 * Errors are "error KIND message", with a kind as retry, reject, config, denied, fenced, fatal. The
 * end of the input closes it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rules.h"

enum { MOST = 2000, MOST_LINES = 20 };
static const char *const kinds[] = {"retry", "reject", "config", "denied", "fenced", "fatal"};
static const char *const actions[] = {"pass", "drop", "dead-letter"};

static struct outbox_rules *rules;
static int32_t partition;
static struct outbox_error error;

static size_t take_messages(char *rest, struct outbox_rules_message *messages)
{
	size_t count = 0;
	for (char *word; count < MOST && (word = strtok_r(NULL, " \n", &rest)); count++) {
		char *end;
		struct outbox_rules_message *message = &messages[count];
		*message = (struct outbox_rules_message){.topic = "orders", .partition = partition};
		message->offset = strtoll(word, &end, 10);
		message->time_ms = strtoll(end + 1, &end, 10);
		message->key = end + 1;
		message->key_length = strlen(end + 1);
	}
	return count;
}

static bool check(char *rest)
{
	static struct outbox_rules_message messages[MOST];
	static struct outbox_rules_verdict verdicts[MOST];
	size_t count = take_messages(rest, messages);
	if (!outbox_rules_check(rules, messages, count, verdicts, &error))
		return false;
	for (size_t i = 0; i < count; i++)
		printf("%s%s", i ? " " : "",
		    verdicts[i].again ? "again" : actions[verdicts[i].action]);
	putchar('\n');
	return true;
}

static bool checkpoint(char *rest)
{
	if (!outbox_rules_checkpoint(rules, strtoll(rest, NULL, 10), &error))
		return false;
	puts("ok");
	return true;
}

static bool tell_stats(void)
{
	struct outbox_rules_stats stats;
	outbox_rules_stats(rules, &stats);
	printf("rules=%zu keys=%" PRIu64 " occurrences=%" PRIu64 " memory=%" PRIu64 " disk=%" PRIu64
	       " newest=%" PRId64 " offset=%" PRId64 "\n",
	    stats.rules, stats.keys, stats.occurrences, stats.memory_bytes, stats.disk_bytes,
	    stats.newest_ms, stats.offset);
	return true;
}

static bool set_partition(const char *rest)
{
	partition = (int32_t)strtol(rest, NULL, 10);
	puts("ok");
	return true;
}

static bool change(char *rest)
{
	const char *lines[MOST_LINES];
	size_t count = 0;

	for (char *line; count < MOST_LINES && (line = strtok_r(NULL, "\t\n", &rest));)
		lines[count++] = line;
	if (!outbox_rules_change(rules, lines, count, &error))
		return false;
	puts("ok");
	return true;
}

static bool obey(const char *command, char *rest)
{
	if (strcmp(command, "change") == 0)
		return change(rest);
	if (strcmp(command, "partition") == 0)
		return set_partition(rest);
	if (strcmp(command, "check") == 0)
		return check(rest);
	if (strcmp(command, "checkpoint") == 0)
		return checkpoint(rest);
	if (strcmp(command, "stats") == 0)
		return tell_stats();
	fprintf(stderr, "rules_driver: unknown command '%s'\n", command);
	exit(64);
}

static void complain(void)
{
	printf("error %s %s\n", kinds[error.kind], error.message);
}

static bool is_setting(const char *argument, const char *name, const char **ret_value)
{
	size_t length = strlen(name);
	bool is = strncmp(argument, name, length) == 0 && argument[length] == '=';
	if (is)
		*ret_value = argument + length + 1;
	return is;
}

static struct outbox_rules *open_rules(int count, char **arguments)
{
	bool shared = strchr(arguments[1], ' ');
	struct outbox_rules_settings settings = {
	    .path = shared ? NULL : arguments[1], .store = shared ? arguments[1] : NULL};
	int at = 2;

	while (at < count && (is_setting(arguments[at], "user", &settings.user) ||
				 is_setting(arguments[at], "content", &settings.content) ||
				 is_setting(arguments[at], "channel", &settings.channel) ||
				 is_setting(arguments[at], "zone", &settings.zone)))
		at++;
	settings.lines = (const char *const *)arguments + at;
	settings.count = (size_t)(count - at);
	return outbox_rules_open_as(&settings, &error);
}

int main(int count, char **arguments)
{
	char *line = NULL, *rest, *command;
	size_t capacity = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	rules = open_rules(count, arguments);
	if (!rules) {
		complain();
		return 1;
	}
	puts("open");
	while (getline(&line, &capacity, stdin) > 0)
		if ((command = strtok_r(line, " \n", &rest)) && !obey(command, rest))
			complain();
	free(line);
	outbox_rules_close(rules);
	return 0;
}
