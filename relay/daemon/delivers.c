#include "delivers.h"

#include <inttypes.h>
#include <stdlib.h>
#include "deliver_check.h"
#include "logging.h"

enum {
	STALLED_MS = 60000,        /* and the time that a replaced consumer may take to end */
	INBOX_STALLED_MS = 600000, /* a turn may wait for the stores of many partitions */
};

struct delivers {
	const struct config *config;
	struct deliver **sections; /* as config->delivers; NULL: those that could not be started */
	struct pause_watch *pauses;
};

static bool start_sections(
    struct delivers *delivers, const char *process, int event_fd, struct err *err)
{
	const struct config *config = delivers->config;
	bool held = config->postgres_count > 0;

	delivers->sections = xcalloc((size_t)config->deliver_count + 1, sizeof(struct deliver *));
	for (int i = 0; i < config->deliver_count; i++) {
		delivers->sections[i] = deliver_start(&config->delivers[i], held, event_fd, err);
		if (!delivers->sections[i])
			return false;
	}
	if (held)
		delivers->pauses = pause_watch_start(
		    &config->postgres[0], delivers->sections, config->deliver_count, process, err);
	return !held || delivers->pauses;
}

struct delivers *delivers_start(
    const struct config *config, const char *process, int event_fd, struct err *err)
{
	struct delivers *delivers = xcalloc(1, sizeof *delivers);

	delivers->config = config;
	if (start_sections(delivers, process, event_fd, err))
		return delivers;
	/* Sections that have started are ended in order: their messages are drained. */
	delivers_stop(delivers);
	delivers_destroy(delivers);
	return NULL;
}

void delivers_stop(struct delivers *delivers)
{
	for (int i = 0; i < delivers->config->deliver_count; i++)
		if (delivers->sections[i])
			deliver_stop(delivers->sections[i]);
}

bool delivers_are_over(const struct delivers *delivers)
{
	for (int i = 0; i < delivers->config->deliver_count; i++)
		if (!deliver_status(delivers->sections[i]).ended)
			return false;
	return true;
}

void delivers_destroy(struct delivers *delivers)
{
	if (!delivers)
		return;
	pause_watch_stop(delivers->pauses);
	for (int i = 0; i < delivers->config->deliver_count; i++)
		deliver_join(delivers->sections[i]);
	free(delivers->sections);
	free(delivers);
}

struct deliver *const *delivers_sections(const struct delivers *delivers)
{
	return delivers->sections;
}

struct pause_watch *delivers_pauses(const struct delivers *delivers)
{
	return delivers->pauses;
}

/* --- reload --------------------------------------------------------------------------------- */

/* NULL: the new configuration has no such section, which a restart will end. */
static const struct config_deliver *find_fresh(
    const struct delivers *delivers, int number, const struct config *fresh)
{
	for (int i = 0; i < fresh->deliver_count; i++)
		if (text_equal(fresh->delivers[i].name, delivers->config->delivers[number].name))
			return &fresh->delivers[i];
	return NULL;
}

bool delivers_check_rules(
    const struct delivers *delivers, const struct config *fresh, struct err *err)
{
	for (int i = 0; i < delivers->config->deliver_count; i++) {
		const struct config_deliver *section = find_fresh(delivers, i, fresh);

		if (section && !deliver_check_rules(&delivers->config->delivers[i], &section->rules,
				   section->rules_file, err))
			return false;
	}
	return true;
}

void delivers_change_rules(struct delivers *delivers, const struct config *fresh)
{
	for (int i = 0; i < delivers->config->deliver_count; i++) {
		const struct config_deliver *section = find_fresh(delivers, i, fresh);
		struct err err;

		if (section && !deliver_change_rules(delivers->sections[i], section, &err))
			log_error("deliver_rules_refused", {"section", LOG_TEXT(section->name)},
			    {"error", LOG_TEXT(err.message)},
			    {"consequence", LOG_TEXT("the rules stay as they were")});
	}
}

/* --- health --------------------------------------------------------------------------------- */

/* Adds the state of a section that works. */
static void add_state(const struct deliver_status *status, struct text *report)
{
	text_addf(report, "reads %d partition%s, delivers %" PRIu64 " of %" PRIu64 " messages",
	    status->partitions, text_plural(status->partitions), status->in_progress,
	    status->messages);

	if (status->blocked > 0)
		text_addf(report, ", %d partition%s blocked", status->blocked,
		    text_plural(status->blocked));
	if (status->sends.breaker != BREAKER_CLOSED)
		text_add(report, ", the application failed too often");
	if (status->held)
		text_add(report, ", waits for the database to say whether it is paused");
	else if (status->paused)
		text_addf(report, ", paused%s%s", status->paused_at[0] ? " since " : "",
		    status->paused_at);
	if (status->last_error[0])
		text_addf(report, "; last error: %s", status->last_error);
}

/*
 * "[+] deliver billing: reads 6 partitions, …"; with "!" for a problem that an application or an
 * operator has to fix: another process could not do better.
 */
static bool section_ready(
    const struct deliver_status *status, const char *name, struct text *report)
{
	bool trouble = status->blocked > 0 || status->sends.breaker != BREAKER_CLOSED;

	text_addf(report, "[%s] deliver %s: ", !status->works ? "-" : trouble ? "!" : "+", name);
	if (status->works)
		add_state(status, report);
	else
		text_add(report, status->error[0] ? status->error : "ends");
	text_add(report, "\n");
	return status->works;
}

bool delivers_ready(const struct delivers *delivers, struct text *report)
{
	bool all = true;

	for (int i = 0; i < delivers->config->deliver_count; i++) {
		const struct deliver_status status = deliver_status(delivers->sections[i]);

		all &= section_ready(&status, delivers->config->delivers[i].name, report);
	}
	return all;
}

static bool is_deliver_part_live(
    const char *what, const char *name, int64_t age, int64_t limit, struct text *report)
{
	bool live = age < limit;

	text_addf(report, "[%s] %s %s: last turn %" PRId64 " ms ago\n", live ? "+" : "-", what,
	    name, age);
	return live;
}

bool delivers_live(const struct delivers *delivers, int64_t now, struct text *report)
{
	bool all = true;

	for (int i = 0; i < delivers->config->deliver_count; i++) {
		const struct config_deliver *section = &delivers->config->delivers[i];
		const struct deliver_status status = deliver_status(delivers->sections[i]);

		all &= is_deliver_part_live("deliver", section->name, now - status.turn_ms,
		    STALLED_MS + section->drain_ms, report);
		if (status.inbox_turn_ms)
			all &= is_deliver_part_live("inbox of deliver", section->name,
			    now - status.inbox_turn_ms, INBOX_STALLED_MS, report);
	}
	return all;
}
