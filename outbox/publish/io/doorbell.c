/*
 * The thread of a doorbell. Each turn lets the session make progress, gives its events to the core,
 * sends the core's next call, wakes shard workers, and waits for the socket, a shard worker or the
 * core's clock. The mutex protects the core, and is never held while the session works: a look-up
 * of a host by name may block.
 *
 * A session begins with the facts about server and table (bell_facts.sql), then listens, and is
 * ready. If the facts forbid a doorbell, the session is closed and made again after CHECK_MS.
 */
#include "doorbell.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "link.h"
#include "logging.h"
#include "schema_text.h"
#include "sql_files.h"
#include "text.h"

enum {
	LIMIT_MS = 5000,  /* of a statement */
	CHECK_MS = 60000, /* until the next session at a server that forbade the doorbell */
};

struct doorbell_metrics {
	struct metric *asleep;
};
#define SERIES(member) METRIC_FIELD(struct doorbell_metrics, member)
#define STATUS(member) METRIC_FIELD(struct bell_status, member)

static const struct metric_row doorbell_rows[] = {
    {"relay_bell_rung_total", METRIC_COUNTER, STATUS(rung),
	"Times that writers woke the shards of this process."},
    {"relay_bell_missed_total", METRIC_COUNTER, STATUS(missed),
	"Times that a sleeping shard found messages for which nobody had rung. The shards then "
	"poll "
	"for a minute as without a doorbell.",
	.alert = "grows: messages wait up to a second; `outbox-relay doctor` names the reason"},
    {"relay_bell_asleep", METRIC_GAUGE, SERIES(asleep),
	"1 while the shards of this process sleep until a writer rings."},
};

const struct metric_table doorbell_metric_table = {
    .title = "The doorbell",
    .about = "Each database from which the process publishes has a "
	     "[doorbell](../explain/doorbell.md).",
    .labels = {{"postgres", "the name of the section"}},
    METRIC_ROWS_OF(doorbell_rows),
};

struct doorbell_seat {
	int wake_fd; /* -1: nobody has the seat */
	int64_t poll_busy_ms;
	uint64_t wakes_seen;
};

struct doorbell {
	const struct postgres_settings *settings;
	pthread_t thread;
	int wake_fd;
	char *facts, *listen, *reason; /* statements; listen: NULL before the facts */

	/* the thread's own */
	struct link link;
	enum session_stage {
		SESSION_NONE,
		SESSION_ASKS,    /* the facts are requested */
		SESSION_LISTENS, /* LISTEN was sent */
		SESSION_READY,
		SESSION_EXPLAINS, /* why nobody rang is requested; then the session is closed */
	} stage;
	enum session_step { STEP_NONE, STEP_PROBE, STEP_TRY, STEP_RELEASE } step; /* in flight */
	int64_t answer_by, connect_at;
	char class[16]; /* the oid of the table, as a lock knows it */
	int64_t missed_seen;
	bool wanted; /* bell_wants_session in this turn */

	pthread_mutex_t mutex; /* protects the members below */
	struct bell *bell;
	struct doorbell_seat *seats;
	int seat_count;
	uint64_t wakes_told;
	int64_t waits_until;
	enum doorbell_use use;
	bool stop, changed;       /* changed: the use */
	char problem[256];        /* why there is no doorbell now, as it was logged; "" */
	struct bell_status noted; /* in the metrics */
	struct doorbell_metrics metrics;
	struct metric_figures figures;
};

static void poke_doorbell(struct doorbell *doorbell)
{
	/* Fails only when the counter is full, and then the thread wakes as well. */
	if (eventfd_write(doorbell->wake_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(doorbell->settings->name)});
}

/* --- the seats of shard workers; the callers have the mutex ---------------------------------- */

/* Wakes every shard worker, once for each wake of the core. */
static void tell_wakes(struct doorbell *doorbell)
{
	if (bell_wakes(doorbell->bell) == doorbell->wakes_told)
		return;
	doorbell->wakes_told = bell_wakes(doorbell->bell);

	for (int i = 0; i < doorbell->seat_count; i++)
		if (doorbell->seats[i].wake_fd >= 0 &&
		    eventfd_write(doorbell->seats[i].wake_fd, 1) != 0)
			log_debug(
			    "already_woken", {"postgres", LOG_TEXT(doorbell->settings->name)});
}

static void note_doorbell(struct doorbell *doorbell)
{
	struct bell_status status = bell_status(doorbell->bell);

	if (status.state != doorbell->noted.state)
		log_debug("doorbell_state", {"postgres", LOG_TEXT(doorbell->settings->name)},
		    {"from", LOG_TEXT(bell_states.rows[doorbell->noted.state].name)},
		    {"to", LOG_TEXT(bell_states.rows[status.state].name)});
	else if (status.rung == doorbell->noted.rung)
		return;
	doorbell->noted = status;
	metric_note(&doorbell_metric_table, &doorbell->figures, &status);
	metric_set(doorbell->metrics.asleep, status.state == BELL_ASLEEP);
}

/* After an event from a shard worker: wakes the thread if it sleeps longer than the core wants. */
static void follow_event(struct doorbell *doorbell, enum bell_state before)
{
	tell_wakes(doorbell);
	if (bell_status(doorbell->bell).state != before)
		note_doorbell(doorbell);
	if (bell_status(doorbell->bell).state != before ||
	    bell_wait(doorbell->bell) < doorbell->waits_until)
		poke_doorbell(doorbell);
}

static int64_t smallest_pause(const struct doorbell *doorbell)
{
	int64_t pause = INT64_MAX;

	for (int i = 0; i < doorbell->seat_count; i++)
		if (doorbell->seats[i].wake_fd >= 0 && doorbell->seats[i].poll_busy_ms < pause)
			pause = doorbell->seats[i].poll_busy_ms;
	return pause == INT64_MAX ? 0 : pause;
}

int doorbell_join(struct doorbell *doorbell, int wake_fd, int64_t poll_busy_ms)
{
	pthread_mutex_lock(&doorbell->mutex);
	int seat = bell_join(doorbell->bell);
	if (seat >= doorbell->seat_count) {
		doorbell->seats =
		    xrealloc(doorbell->seats, (size_t)(seat + 1) * sizeof *doorbell->seats);
		doorbell->seat_count = seat + 1;
	}

	doorbell->seats[seat] =
	    (struct doorbell_seat){wake_fd, poll_busy_ms, bell_wakes(doorbell->bell)};
	bell_retune(doorbell->bell, smallest_pause(doorbell));
	pthread_mutex_unlock(&doorbell->mutex);
	return seat;
}

void doorbell_leave(struct doorbell *doorbell, int seat)
{
	pthread_mutex_lock(&doorbell->mutex);
	enum bell_state before = bell_status(doorbell->bell).state;
	bell_leave(doorbell->bell, clock_ms(), seat);
	doorbell->seats[seat].wake_fd = -1;
	bell_retune(doorbell->bell, smallest_pause(doorbell));
	follow_event(doorbell, before);
	pthread_mutex_unlock(&doorbell->mutex);
}

bool doorbell_take_wake(struct doorbell *doorbell, int seat)
{
	pthread_mutex_lock(&doorbell->mutex);
	struct doorbell_seat *place = &doorbell->seats[seat];
	bool woken = place->wakes_seen != bell_wakes(doorbell->bell);
	place->wakes_seen = bell_wakes(doorbell->bell);
	pthread_mutex_unlock(&doorbell->mutex);
	return woken;
}

void doorbell_own(struct doorbell *doorbell, int seat, bool owns)
{
	pthread_mutex_lock(&doorbell->mutex);
	enum bell_state before = bell_status(doorbell->bell).state;
	bell_own(doorbell->bell, clock_ms(), seat, owns);
	follow_event(doorbell, before);
	/* The first owned shard wants a session, the last one takes it along. */
	poke_doorbell(doorbell);
	pthread_mutex_unlock(&doorbell->mutex);
}

void doorbell_look_begins(struct doorbell *doorbell, int seat)
{
	pthread_mutex_lock(&doorbell->mutex);
	bell_look_begins(doorbell->bell, seat);
	pthread_mutex_unlock(&doorbell->mutex);
}

void doorbell_look_ends(struct doorbell *doorbell, int seat, bool found)
{
	pthread_mutex_lock(&doorbell->mutex);
	enum bell_state before = bell_status(doorbell->bell).state;
	bell_look_ends(doorbell->bell, clock_ms(), seat, found);
	follow_event(doorbell, before);
	pthread_mutex_unlock(&doorbell->mutex);
}

void doorbell_rows_came(struct doorbell *doorbell, int seat)
{
	pthread_mutex_lock(&doorbell->mutex);
	enum bell_state before = bell_status(doorbell->bell).state;
	bell_rows_came(doorbell->bell, seat);
	follow_event(doorbell, before);
	pthread_mutex_unlock(&doorbell->mutex);
}

bool doorbell_may_doze(struct doorbell *doorbell, int seat)
{
	pthread_mutex_lock(&doorbell->mutex);
	bool may = bell_may_doze(doorbell->bell, seat);
	pthread_mutex_unlock(&doorbell->mutex);
	return may;
}

void doorbell_retune(struct doorbell *doorbell, const struct postgres_settings *settings)
{
	pthread_mutex_lock(&doorbell->mutex);
	doorbell->changed |= doorbell->use != settings->doorbell;
	doorbell->use = settings->doorbell;
	pthread_mutex_unlock(&doorbell->mutex);
	poke_doorbell(doorbell);
}

void doorbell_set_pause(struct doorbell *doorbell, int seat, int64_t poll_busy_ms)
{
	pthread_mutex_lock(&doorbell->mutex);
	doorbell->seats[seat].poll_busy_ms = poll_busy_ms;
	bell_retune(doorbell->bell, smallest_pause(doorbell));
	pthread_mutex_unlock(&doorbell->mutex);
}

struct doorbell_status doorbell_status(struct doorbell *doorbell)
{
	struct doorbell_status status = {0};

	pthread_mutex_lock(&doorbell->mutex);
	status.bell = bell_status(doorbell->bell);
	if (doorbell->use == DOORBELL_OFF)
		text_copy(status.problem, sizeof status.problem, "doorbell = off");
	else
		text_copy(status.problem, sizeof status.problem, doorbell->problem);
	pthread_mutex_unlock(&doorbell->mutex);
	return status;
}

int64_t doorbell_sleep(struct doorbell *doorbell)
{
	pthread_mutex_lock(&doorbell->mutex);
	struct bell_status status = bell_status(doorbell->bell);
	pthread_mutex_unlock(&doorbell->mutex);
	return status.state == BELL_ASLEEP ? (int64_t)status.grants : 0;
}

/* --- events of the session ------------------------------------------------------------------- */

/* Calls `event` of the core, and wakes the shard workers if the event does. */
static void give_event(
    struct doorbell *doorbell, int64_t now, void (*event)(struct bell *bell, int64_t now))
{
	pthread_mutex_lock(&doorbell->mutex);
	event(doorbell->bell, now);
	/* Before the next statement: a message waits. */
	tell_wakes(doorbell);
	pthread_mutex_unlock(&doorbell->mutex);
}

static void give_tried(struct doorbell *doorbell, int64_t now, bool granted)
{
	pthread_mutex_lock(&doorbell->mutex);
	bell_tried(doorbell->bell, now, granted);
	pthread_mutex_unlock(&doorbell->mutex);
}

/* why "": the doorbell works. */
static void note_problem(struct doorbell *doorbell, const char *why)
{
	pthread_mutex_lock(&doorbell->mutex);
	bool known = text_equal(doorbell->problem, why);
	text_copy(doorbell->problem, sizeof doorbell->problem, why);
	pthread_mutex_unlock(&doorbell->mutex);
	if (known)
		return;

	if (*why)
		log_info("doorbell_off", {"postgres", LOG_TEXT(doorbell->settings->name)},
		    {"reason", LOG_TEXT(why)},
		    {"consequence", LOG_TEXT("the publishers poll (poll_idle)")});
	else
		log_info("doorbell_works", {"postgres", LOG_TEXT(doorbell->settings->name)});
}

/* The link's connection is closed, and the server has ended its session or will. */
static void forget_bell_session(struct doorbell *doorbell, int64_t now)
{
	doorbell->stage = SESSION_NONE;
	doorbell->step = STEP_NONE;
	give_event(doorbell, now, bell_session_lost);
}

static void close_bell_session(struct doorbell *doorbell, int64_t now)
{
	link_finish(&doorbell->link);
	forget_bell_session(doorbell, now);
}

/* There is no doorbell at this server now. */
static void refuse_bell_session(struct doorbell *doorbell, int64_t now, const char *why)
{
	note_problem(doorbell, why);
	close_bell_session(doorbell, now);
	doorbell->connect_at = now + CHECK_MS;
}

static void bell_session_failed(struct doorbell *doorbell, int64_t now, const struct err *err)
{
	note_problem(doorbell, err->message);
	link_drop(&doorbell->link, now, err);
	forget_bell_session(doorbell, now);
}

/* --- statements ------------------------------------------------------------------------------ */

static bool send_bell_statement(
    struct doorbell *doorbell, const char *sql, const struct pg_param *params, int count)
{
	struct err err;
	int64_t now = clock_ms();

	doorbell->answer_by = now + 2 * LIMIT_MS;
	if (link_send(&doorbell->link, sql, params, count, &err))
		return true;
	bell_session_failed(doorbell, now, &err);
	return false;
}

static void send_bell_step(struct doorbell *doorbell, enum session_step step, const char *sql)
{
	const struct pg_param params[] = {{doorbell->class}};

	doorbell->step = step;
	(void)send_bell_statement(doorbell, sql, params, 1);
}

static void send_bell_call(struct doorbell *doorbell, int64_t now)
{
	pthread_mutex_lock(&doorbell->mutex);
	enum bell_call call = bell_next_call(doorbell->bell, now);
	pthread_mutex_unlock(&doorbell->mutex);

	if (call == BELL_TRY)
		send_bell_step(doorbell, STEP_PROBE, sql_bell_probe);
	else if (call == BELL_UNLOCK)
		send_bell_step(doorbell, STEP_RELEASE, sql_bell_release);
}

static void ask_facts(struct doorbell *doorbell)
{
	pthread_mutex_lock(&doorbell->mutex);
	bool always = doorbell->use == DOORBELL_ON;
	doorbell->changed = false;
	pthread_mutex_unlock(&doorbell->mutex);

	const struct pg_param params[] = {{always ? "true" : "false"}};
	doorbell->stage = SESSION_ASKS;
	(void)send_bell_statement(doorbell, doorbell->facts, params, 1);
}

/* Columns of bell_facts.sql: standby, class, oid, why there is no doorbell. */
static void take_facts(struct doorbell *doorbell, const struct pg_result *facts, int64_t now)
{
	struct err err;

	if (!pg_has_shape(facts, "bitt", &err)) {
		refuse_bell_session(doorbell, now, err.message);
	} else if (pg_rows(facts) == 0) {
		refuse_bell_session(doorbell, now, "the schema has no message table");
	} else if (*pg_value(facts, 0, 0)) {
		/* The next attempt may find the primary. */
		err_set(&err, ERR_RETRY, "%s is a standby", pg_place(doorbell->link.pg));
		bell_session_failed(doorbell, now, &err);
	} else if (!pg_is_null(facts, 0, 3)) {
		refuse_bell_session(doorbell, now, pg_value(facts, 0, 3));
	} else {
		snprintf(doorbell->class, sizeof doorbell->class, "%" PRId32, pg_int4(facts, 0, 1));
		free(doorbell->listen);
		doorbell->listen = xformat("listen outbox_bell_%s", pg_value(facts, 0, 2));
		doorbell->stage = SESSION_LISTENS;
		(void)send_bell_statement(doorbell, doorbell->listen, NULL, 0);
	}
}

static void take_step_answer(struct doorbell *doorbell, const struct pg_result *result, int64_t now)
{
	enum session_step step = doorbell->step;
	bool yes = pg_rows(result) == 1 && *pg_value(result, 0, 0);

	doorbell->step = STEP_NONE;
	if (step == STEP_PROBE && yes)
		send_bell_step(doorbell, STEP_TRY, sql_bell_try);
	else if (step == STEP_RELEASE)
		give_event(doorbell, now, bell_unlocked);
	else
		give_tried(doorbell, now, yes);
}

/* Columns of bell_reason.sql: the reason, whether messages may wait for it. */
static void log_missed(const struct doorbell *doorbell, const struct pg_result *result)
{
	const char *reason =
	    pg_rows(result) == 1 && *pg_value(result, 0, 1)
		? pg_value(result, 0, 0)
		: "unknown; for example the transaction that rang was rolled back, "
		  "session_replication_role = replica, or an INSERT into a partition";

	log_warn("bell_missed", {"postgres", LOG_TEXT(doorbell->settings->name)},
	    {"reason", LOG_TEXT(reason)},
	    {"consequence", LOG_TEXT("messages waited up to a second; the publishers poll for a "
				     "minute as without a doorbell")});
}

static void take_session_answer(
    struct doorbell *doorbell, const struct pg_result *result, int64_t now)
{
	switch (doorbell->stage) {
	case SESSION_ASKS:
		take_facts(doorbell, result, now);
		break;
	case SESSION_LISTENS:
		doorbell->stage = SESSION_READY;
		note_problem(doorbell, "");
		give_event(doorbell, now, bell_session_ready);
		break;
	case SESSION_EXPLAINS:
		log_missed(doorbell, result);
		close_bell_session(doorbell, now);
		break;
	default:
		take_step_answer(doorbell, result, now);
	}
}

static void receive_session_answer(struct doorbell *doorbell, int64_t now)
{
	struct err err;
	bool done;
	OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;

	if (!pg_receive(doorbell->link.pg, &done, &result, &err))
		bell_session_failed(doorbell, now, &err);
	else if (done)
		take_session_answer(doorbell, result, now);
}

/* --- the session ----------------------------------------------------------------------------- */

/* The session is idle. */
static void use_session(struct doorbell *doorbell, int64_t now)
{
	if (doorbell->stage == SESSION_READY)
		send_bell_call(doorbell, now);
	else if (doorbell->stage == SESSION_NONE && !doorbell->link.own)
		refuse_bell_session(doorbell, now, "a pooler is between relay and server");
	else if (doorbell->stage == SESSION_NONE)
		ask_facts(doorbell);
}

static void step_bell_session(struct doorbell *doorbell, int64_t now)
{
	struct err err;

	if (!doorbell->link.pg && now < doorbell->connect_at)
		return;
	enum link_event event = link_step(&doorbell->link, now);

	bool rung = doorbell->link.pg && pg_notifications(doorbell->link.pg) > 0;
	if (rung && doorbell->stage == SESSION_READY)
		give_event(doorbell, now, bell_rung);
	if (event == LINK_ANSWER)
		receive_session_answer(doorbell, now);
	if (event == LINK_READY)
		use_session(doorbell, now);
	if (event == LINK_LOST) {
		note_problem(doorbell, doorbell->link.error);
		forget_bell_session(doorbell, now);
	}

	bool waits = doorbell->link.pg && pg_state(doorbell->link.pg) == PG_BUSY &&
		     doorbell->link.stage == LINK_KNOWN;
	if (waits && now >= doorbell->answer_by) {
		err_set(&err, ERR_RETRY, "%s does not answer", pg_place(doorbell->link.pg));
		bell_session_failed(doorbell, now, &err);
	}
}

/* No session is wanted. After missed rows the session first finds out why nobody rang. */
static void end_bell_session(struct doorbell *doorbell, int64_t missed, int64_t now)
{
	bool missed_now = missed != doorbell->missed_seen;
	bool ready = doorbell->link.pg && doorbell->stage == SESSION_READY &&
		     pg_state(doorbell->link.pg) == PG_IDLE;
	const struct pg_param params[] = {{doorbell->class}};

	doorbell->missed_seen = missed;
	if (missed_now && ready) {
		doorbell->stage = SESSION_EXPLAINS;
		(void)send_bell_statement(doorbell, doorbell->reason, params, 1);
	} else if (doorbell->stage == SESSION_EXPLAINS) {
		step_bell_session(doorbell, now);
	} else if (doorbell->link.pg) {
		close_bell_session(doorbell, now);
	}
}

/* --- the loop -------------------------------------------------------------------------------- */

static void enable_bell(struct doorbell *doorbell, int64_t now)
{
	pthread_mutex_lock(&doorbell->mutex);
	bool changed = doorbell->changed;
	doorbell->changed = false;
	bell_enable(doorbell->bell, now, doorbell->use != DOORBELL_OFF);
	pthread_mutex_unlock(&doorbell->mutex);

	/* auto and on differ in the facts that they allow. */
	if (!changed)
		return;
	close_bell_session(doorbell, now);
	note_problem(doorbell, "");
	doorbell->connect_at = now;
}

static void wait_for_bell_events(struct doorbell *doorbell)
{
	struct link *link = &doorbell->link;
	struct pollfd fds[] = {{.fd = doorbell->wake_fd, .events = POLLIN}, {.fd = -1}};
	eventfd_t count;

	pthread_mutex_lock(&doorbell->mutex);
	int64_t until = bell_wait(doorbell->bell);
	bool wanted = bell_wants_session(doorbell->bell);
	pthread_mutex_unlock(&doorbell->mutex);

	/* The core changed its mind after the session's turn. */
	if (wanted != doorbell->wanted)
		return;
	if (link->pg) {
		fds[1] = (struct pollfd){.fd = pg_fd(link->pg), .events = pg_events(link->pg)};
		if (pg_state(link->pg) == PG_BUSY && doorbell->answer_by < until)
			until = doorbell->answer_by;
	}
	int64_t dial = link->pg || link_wait(link) > doorbell->connect_at ? link_wait(link)
									  : doorbell->connect_at;
	if ((wanted || link->pg) && dial < until)
		until = dial;

	int64_t wait = until - clock_ms();
	wait = wait < 0 ? 0 : wait > 3600000 ? 3600000 : wait;
	bool polled = poll(fds, 2, (int)wait) >= 0;
	link->quiet = polled && !fds[1].revents;
	if (fds[0].revents)
		(void)eventfd_read(doorbell->wake_fd, &count);
}

/* False: the thread must end. */
static bool step_doorbell(struct doorbell *doorbell)
{
	int64_t now = clock_ms();

	enable_bell(doorbell, now);
	pthread_mutex_lock(&doorbell->mutex);
	doorbell->wanted = bell_wants_session(doorbell->bell);
	int64_t missed = bell_status(doorbell->bell).missed;
	pthread_mutex_unlock(&doorbell->mutex);
	if (doorbell->wanted)
		step_bell_session(doorbell, now);
	else
		end_bell_session(doorbell, missed, now);

	pthread_mutex_lock(&doorbell->mutex);
	bell_step(doorbell->bell, now);
	tell_wakes(doorbell);
	note_doorbell(doorbell);
	doorbell->waits_until = bell_wait(doorbell->bell);
	bool goes_on = !doorbell->stop;
	pthread_mutex_unlock(&doorbell->mutex);
	return goes_on;
}

static void *run_doorbell(void *context)
{
	struct doorbell *doorbell = context;

	while (step_doorbell(doorbell))
		wait_for_bell_events(doorbell);
	link_finish(&doorbell->link);
	return NULL;
}

static void free_doorbell(struct doorbell *doorbell)
{
	bell_destroy(doorbell->bell);
	close(doorbell->wake_fd);
	pthread_mutex_destroy(&doorbell->mutex);
	free(doorbell->facts);
	free(doorbell->listen);
	free(doorbell->reason);
	free(doorbell->seats);
	free(doorbell);
}

struct doorbell *doorbell_start(const struct postgres_settings *settings, struct err *err)
{
	struct doorbell *doorbell = xcalloc(1, sizeof *doorbell);
	const char *const labels[] = {settings->name};

	doorbell->settings = settings;
	doorbell->use = settings->doorbell;
	doorbell->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	doorbell->facts = schema_text(sql_bell_facts, settings->schema);
	doorbell->reason = schema_text(sql_bell_reason, settings->schema);
	doorbell->bell = bell_create(0);
	metric_series_all(&doorbell_metric_table, labels, &doorbell->metrics, &doorbell->figures);
	pthread_mutex_init(&doorbell->mutex, NULL);
	link_init(&doorbell->link, settings->dsn, "outbox-relay bell", NULL);
	link_limit(&doorbell->link, LIMIT_MS);

	if (pthread_create(&doorbell->thread, NULL, run_doorbell, doorbell) == 0)
		return doorbell;
	err_set(err, ERR_FATAL, "no thread for the doorbell of postgres %s", settings->name);
	link_finish(&doorbell->link);
	free_doorbell(doorbell);
	return NULL;
}

void doorbell_destroy(struct doorbell *doorbell)
{
	if (!doorbell)
		return;
	pthread_mutex_lock(&doorbell->mutex);
	doorbell->stop = true;
	pthread_mutex_unlock(&doorbell->mutex);
	poke_doorbell(doorbell);
	pthread_join(doorbell->thread, NULL);
	free_doorbell(doorbell);
}
