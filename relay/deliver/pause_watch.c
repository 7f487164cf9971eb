/*
 * Reads the pauses of the sections from the database once a second. Begin at run_pause_watch, the
 * loop of the thread; step_pauses makes one look, and take_pause_order gives an order to a section.
 */
#include "pause_watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "backoff.h"
#include "cleanup.h"
#include "clock.h"
#include "logging.h"
#include "pg.h"
#include "pg_array.h"
#include "schema_text.h"
#include "sql_files.h"

enum {
	CONNECT_MS = 5000,
	LOOK_MS = 1000,
	BACKOFF_MOST_MS = 5000,
	HOLD_MS = 30000,
	NOTE_MS = 60000
};

/* The newest order that a section has. */
struct pause_order {
	int64_t number; /* -1: none yet */
	bool paused;
};

struct pause_watch {
	const struct postgres_settings *postgres;
	struct deliver *const *sections;
	int count;
	const char *process;
	int stop_fd, wake_fd;
	pthread_t thread;

	/* of the thread */
	struct pg *pg;
	struct backoff backoff;
	struct pg_array names;
	char *note_sql, *look_sql;
	struct pause_order *orders; /* as sections */
	int64_t hold_until;
	int64_t note_at; /* when the rows of the process are due */
	bool holds;      /* the sections wait for the first answer */
	bool failing;    /* the failure was logged */

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t looked;
	int64_t requests, answered; /* looks that pause_watch_look began, and that are over */
};

/* --- a look ----------------------------------------------------------------------------------- */

static int find_section_place(const struct pause_watch *watch, const char *name)
{
	for (int i = 0; i < watch->count; i++)
		if (text_equal(deliver_section(watch->sections[i])->name, name))
			return i;
	return -1;
}

/* Columns of deliver_pauses.sql. */
enum { PAUSE_NAME, PAUSE_SINCE, PAUSE_NUMBER };

/* A restored database may have an order of the past: any other number is a new one. */
static void take_pause_order(struct pause_watch *watch, const struct pg_result *rows, int row)
{
	const int place = find_section_place(watch, pg_value(rows, row, PAUSE_NAME));
	const struct pause_order order = {.number = pg_int(rows, row, PAUSE_NUMBER),
	    .paused = !pg_is_null(rows, row, PAUSE_SINCE)};
	struct pause_order *known = &watch->orders[place < 0 ? 0 : place];

	if (place < 0 || (known->number == order.number && known->paused == order.paused))
		return;
	if (known->paused != order.paused)
		log_info(order.paused ? "deliver_paused" : "deliver_resumed",
		    {"section", LOG_TEXT(pg_value(rows, row, PAUSE_NAME))});
	*known = order;
	deliver_pause(watch->sections[place], order.paused, pg_value(rows, row, PAUSE_SINCE));
}

/* *ret_complete: each section has a row. */
static bool read_orders(struct pause_watch *watch, bool *ret_complete, struct err *err)
{
	const struct pg_param params[] = {{pg_array_end(&watch->names)}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = pg_query(watch->pg, watch->look_sql, params, 1, err);

	*ret_complete = rows && pg_rows(rows) == watch->count;
	for (int i = 0; rows && i < pg_rows(rows); i++)
		take_pause_order(watch, rows, i);
	return rows != NULL;
}

/* Makes the rows of the sections, so that any process knows which sections run where. */
static bool note_sections(struct pause_watch *watch, struct err *err)
{
	const struct pg_param params[] = {{pg_array_end(&watch->names)}, {watch->process}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *noted = pg_query(watch->pg, watch->note_sql, params, 2, err);

	if (noted)
		watch->note_at = clock_ms() + NOTE_MS;
	return noted != NULL;
}

static bool look_for_orders(struct pause_watch *watch, struct err *err)
{
	bool complete = false;

	if (!watch->pg)
		watch->pg = pg_connect(
		    watch->postgres->dsn, "outbox-relay deliver pauses", CONNECT_MS, err);
	if (!watch->pg || !read_orders(watch, &complete, err))
		return false;
	/* the orders come first: they hold even where the rows cannot be noted */
	if (complete && clock_ms() < watch->note_at)
		return true;
	return note_sections(watch, err) && (complete || read_orders(watch, &complete, err));
}

/* Lets the sections work that have waited for the first answer. */
static void release_sections(struct pause_watch *watch)
{
	for (int i = 0; watch->holds && i < watch->count; i++)
		if (watch->orders[i].number < 0)
			deliver_pause(watch->sections[i], false, "");
	watch->holds = false;
}

static void report_failed_look(struct pause_watch *watch, const struct err *err)
{
	bool waits = err->kind == ERR_RETRY && clock_ms() < watch->hold_until;

	if (!watch->failing || (watch->holds && !waits))
		log_warn("pauses_unread", {"postgres", LOG_TEXT(watch->postgres->name)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence",
			LOG_TEXT(!watch->holds ? "sections stay paused or at work, as they are"
				 : waits ? "sections wait at most 30 s for the answer whether they "
					   "are paused"
					 : "sections deliver, even if an operator has paused "
					   "them")});
	watch->failing = true;
	if (!waits)
		release_sections(watch);
}

/* Returns when to look again. */
static int64_t step_pauses(struct pause_watch *watch)
{
	struct err err;

	if (look_for_orders(watch, &err)) {
		if (watch->failing)
			log_info(
			    "pauses_read_again", {"postgres", LOG_TEXT(watch->postgres->name)});
		watch->failing = false;
		backoff_reset(&watch->backoff);
		release_sections(watch);
		return clock_ms() + LOOK_MS;
	}
	pg_destroy(watch->pg);
	watch->pg = NULL;
	watch->note_at = 0;
	report_failed_look(watch, &err);
	return clock_ms() + backoff_next_ms(&watch->backoff);
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Returns whether it is to end. */
static bool wait_for_pause_look(const struct pause_watch *watch, int64_t at)
{
	struct pollfd fds[] = {
	    {.fd = watch->stop_fd, .events = POLLIN}, {.fd = watch->wake_fd, .events = POLLIN}};
	int64_t wait = at - clock_ms();
	eventfd_t ignored;

	poll(fds, 2, wait > 0 ? (int)wait : 0);
	(void)eventfd_read(watch->wake_fd, &ignored); /* fails when nobody called */
	return fds[0].revents != 0;
}

static int64_t begun_looks(struct pause_watch *watch)
{
	int64_t begun;

	pthread_mutex_lock(&watch->mutex);
	begun = watch->requests;
	pthread_mutex_unlock(&watch->mutex);
	return begun;
}

static void end_looks(struct pause_watch *watch, int64_t answered)
{
	pthread_mutex_lock(&watch->mutex);
	watch->answered = answered;
	pthread_cond_broadcast(&watch->looked);
	pthread_mutex_unlock(&watch->mutex);
}

static void *run_pause_watch(void *context)
{
	struct pause_watch *watch = context;
	int64_t at = 0;

	pthread_setname_np(pthread_self(), "pauses");
	pg_interrupt_by(watch->stop_fd);
	while (!wait_for_pause_look(watch, at)) {
		int64_t begun = begun_looks(watch);

		at = step_pauses(watch);
		end_looks(watch, begun);
	}
	return NULL;
}

void pause_watch_look(struct pause_watch *watch, int64_t most_ms)
{
	const struct timespec until = clock_until(most_ms);
	int64_t request;
	int error = 0;

	pthread_mutex_lock(&watch->mutex);
	request = ++watch->requests;
	if (eventfd_write(watch->wake_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(watch->postgres->name)});

	while (watch->answered < request && error == 0)
		error = pthread_cond_timedwait(&watch->looked, &watch->mutex, &until);
	pthread_mutex_unlock(&watch->mutex);
}

/* --- start and stop --------------------------------------------------------------------------- */

static void free_pause_watch(struct pause_watch *watch)
{
	pg_destroy(watch->pg);
	if (watch->stop_fd >= 0)
		close(watch->stop_fd);
	if (watch->wake_fd >= 0)
		close(watch->wake_fd);

	pthread_cond_destroy(&watch->looked);
	pthread_mutex_destroy(&watch->mutex);
	pg_array_finish(&watch->names);
	free(watch->note_sql);
	free(watch->look_sql);
	free(watch->orders);
	free(watch);
}

struct pause_watch *pause_watch_start(const struct postgres_settings *postgres,
    struct deliver *const *sections, int count, const char *process, struct err *err)
{
	struct pause_watch *watch = xcalloc(1, sizeof *watch);
	int error;

	watch->postgres = postgres;
	watch->sections = sections;
	watch->count = count;
	watch->process = process;
	watch->note_sql = schema_text(sql_deliver_note, postgres->schema);
	watch->look_sql = schema_text(sql_deliver_pauses, postgres->schema);
	watch->orders = xcalloc((size_t)count + 1, sizeof *watch->orders);
	for (int i = 0; i < count; i++) {
		watch->orders[i].number = -1;
		pg_array_add_text(&watch->names, deliver_section(sections[i])->name);
	}

	watch->holds = true;
	watch->hold_until = clock_ms() + HOLD_MS;
	watch->backoff = (struct backoff){.first_ms = LOOK_MS,
	    .cap_ms = BACKOFF_MOST_MS,
	    .jitter = 0.3,
	    .seed = (uint64_t)clock_random()};
	pthread_mutex_init(&watch->mutex, NULL);
	clock_cond_init(&watch->looked);
	watch->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	watch->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	error = watch->stop_fd < 0 || watch->wake_fd < 0
		    ? errno
		    : pthread_create(&watch->thread, NULL, run_pause_watch, watch);
	if (error == 0)
		return watch;
	err_set(
	    err, ERR_RETRY, "no thread for the pauses of [deliver] sections: %s", strerror(error));
	free_pause_watch(watch);
	return NULL;
}

void pause_watch_stop(struct pause_watch *watch)
{
	if (!watch)
		return;
	if (eventfd_write(watch->stop_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(watch->postgres->name)});
	pthread_join(watch->thread, NULL);
	free_pause_watch(watch);
}
