#include "lookbacks.h"

#include <inttypes.h>
#include <stdlib.h>
#include "checker.h"
#include "logging.h"
#include "reader.h"
#include "route.h"

/* Statements of the look-back wait for locks and for the network, each with a limit. */
enum { STALLED_MS = 60000 };

struct lookbacks {
	const struct config *config;
	struct route *route;
	struct section *sections; /* as config->lookbacks */
};

struct section {
	struct reader **readers; /* lookback->readers; NULL: those that could not be started */
	struct checker *checker;
};

static bool start_section_readers(
    struct lookbacks *lookbacks, int place, const char *owner, int event_fd, struct err *err)
{
	const struct config_lookback *lookback = &lookbacks->config->lookbacks[place];
	struct section *section = &lookbacks->sections[place];

	for (int i = 0; i < lookback->readers; i++) {
		section->readers[i] =
		    reader_start(lookback, lookbacks->route, owner, event_fd, err);
		if (!section->readers[i])
			return false;
	}
	return true;
}

static bool start_lookback_section(
    struct lookbacks *lookbacks, int place, const char *owner, int event_fd, struct err *err)
{
	const struct config_lookback *lookback = &lookbacks->config->lookbacks[place];
	struct section *section = &lookbacks->sections[place];
	const struct checker_options checker = {.config = lookbacks->config,
	    .lookback = lookback,
	    .transport = transport_kind_of,
	    .event_fd = event_fd};

	section->readers = xcalloc((size_t)lookback->readers, sizeof(struct reader *));
	section->checker = checker_start(&checker, err);
	return (section->checker &&
		   start_section_readers(lookbacks, place, owner, event_fd, err)) ||
	       err_prefix(err, "[lookback \"%s\"]", lookback->name);
}

struct lookbacks *lookbacks_start(
    const struct config *config, const char *owner, int event_fd, struct err *err)
{
	struct lookbacks *lookbacks = xcalloc(1, sizeof *lookbacks);

	lookbacks->config = config;
	lookbacks->sections =
	    xcalloc((size_t)config->lookback_count + 1, sizeof *lookbacks->sections);
	lookbacks->route = route_create(config, err);
	if (!lookbacks->route)
		goto fail;
	for (int i = 0; i < config->lookback_count; i++)
		if (!start_lookback_section(lookbacks, i, owner, event_fd, err))
			goto fail;
	return lookbacks;
fail:
	lookbacks_stop(lookbacks);
	lookbacks_destroy(lookbacks);
	return NULL;
}

void lookbacks_stop(struct lookbacks *lookbacks)
{
	for (int i = 0; i < lookbacks->config->lookback_count; i++) {
		struct section *section = &lookbacks->sections[i];

		for (int j = 0; section->readers && j < lookbacks->config->lookbacks[i].readers;
		     j++)
			if (section->readers[j])
				reader_stop(section->readers[j]);
		if (section->checker)
			checker_stop(section->checker);
	}
}

/*
 * All readers of a section as one: the oldest turn, the first error, the partitions together as
 * soon as each is a member.
 */
static struct reader_status readers_status(const struct lookbacks *lookbacks, int place)
{
	struct reader_status all = {.ended = true, .turn_ms = INT64_MAX};

	for (int i = 0; i < lookbacks->config->lookbacks[place].readers; i++) {
		const struct reader_status one =
		    reader_status(lookbacks->sections[place].readers[i]);

		all.ended &= one.ended;
		if (one.turn_ms < all.turn_ms)
			all.turn_ms = one.turn_ms;
		all.partitions =
		    all.partitions < 0 || one.partitions < 0 ? -1 : all.partitions + one.partitions;
		if (all.error[0] == '\0')
			text_copy(all.error, sizeof all.error, one.error);
	}
	return all;
}

bool lookbacks_are_over(const struct lookbacks *lookbacks)
{
	for (int i = 0; i < lookbacks->config->lookback_count; i++)
		if (!readers_status(lookbacks, i).ended ||
		    !checker_status(lookbacks->sections[i].checker).ended)
			return false;
	return true;
}

void lookbacks_destroy(struct lookbacks *lookbacks)
{
	if (!lookbacks)
		return;
	for (int i = 0; i < lookbacks->config->lookback_count; i++) {
		struct section *section = &lookbacks->sections[i];

		for (int j = 0; section->readers && j < lookbacks->config->lookbacks[i].readers;
		     j++)
			reader_join(section->readers[j]);
		free(section->readers);
		checker_join(section->checker);
	}
	/* Last: readers use it until they have ended. */
	route_destroy(lookbacks->route);
	free(lookbacks->sections);
	free(lookbacks);
}

/* "[+] reader of look-back orders: reads 6 partitions" */
static bool reader_ready(const struct reader_status *status, const char *name, struct text *report)
{
	bool ready = status->error[0] == '\0';

	text_addf(report, "[%s] reader of look-back %s: ", ready ? "+" : "-", name);
	if (!ready)
		text_addf(report, "%s\n", status->error);
	else if (status->partitions < 0)
		text_add(report, "joins its group\n");
	else
		text_addf(report, "reads %d partition%s\n", status->partitions,
		    text_plural(status->partitions));
	return ready;
}

static bool checker_ready(
    const struct checker_status *status, const char *name, struct text *report)
{
	text_addf(report, "[%s] checker of look-back %s: ", status->works ? "+" : "-", name);
	if (status->works)
		text_addf(report,
		    "%d id%s claimed, %d request%s in flight, %d host%s not called%s%s\n",
		    status->rows, text_plural(status->rows), status->in_flight,
		    text_plural(status->in_flight), status->breakers_open,
		    text_plural(status->breakers_open), status->last_error[0] ? "; " : "",
		    status->last_error);
	else
		text_addf(report, "%s\n", status->error[0] ? status->error : "begins");
	return status->works;
}

bool lookbacks_ready(const struct lookbacks *lookbacks, struct text *report)
{
	bool all = true;

	for (int i = 0; i < lookbacks->config->lookback_count; i++) {
		const struct reader_status reader = readers_status(lookbacks, i);
		const struct checker_status checker =
		    checker_status(lookbacks->sections[i].checker);
		const char *name = lookbacks->config->lookbacks[i].name;

		all &= reader_ready(&reader, name, report);
		all &= checker_ready(&checker, name, report);
	}
	return all;
}

static bool is_part_live(
    const char *what, const char *name, int64_t turn_ms, int64_t now, struct text *report)
{
	bool live = now - turn_ms < STALLED_MS;

	text_addf(report, "[%s] %s of look-back %s: last turn %" PRId64 " ms ago\n",
	    live ? "+" : "-", what, name, now - turn_ms);
	return live;
}

bool lookbacks_live(const struct lookbacks *lookbacks, int64_t now, struct text *report)
{
	bool all = true;

	for (int i = 0; i < lookbacks->config->lookback_count; i++) {
		const struct section *section = &lookbacks->sections[i];
		const char *name = lookbacks->config->lookbacks[i].name;

		all &=
		    is_part_live("reader", name, readers_status(lookbacks, i).turn_ms, now, report);
		all &= is_part_live(
		    "checker", name, checker_status(section->checker).loop_ms, now, report);
	}
	return all;
}
