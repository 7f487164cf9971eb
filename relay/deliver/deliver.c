/*
 * One [deliver] section: a thread that owns an inbox and a sender. Begin at run_deliver, whose
 * turns open the inbox, apply pauses, and reopen it after a failure; submit_messages and
 * finish_messages connect inbox and sender.
 */
#include "deliver.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "clock.h"
#include "deliver_check.h"
#include "deliver_inbox.h"
#include "http_sender.h"
#include "logging.h"

enum { TURN_MS = 1000, OPEN_AGAIN_MS = 10000 };

struct deliver {
	const struct config_deliver *section;
	struct config_deliver now; /* the section with the rules of now; of the thread */
	struct http_sender *sender;
	struct deliver_metrics *metrics;
	pthread_t thread;
	int wake_fd, event_fd;
	/* The inbox that messages come from and go back to. Set while the HTTP sender has any. */
	_Atomic(struct outbox_inbox *) source;

	/* of the thread */
	struct outbox_inbox *inbox; /* NULL: it is to be opened again */
	int64_t open_at;
	uint64_t handled_before, dead_before; /* by inboxes that were closed */
	bool pausing;                         /* the last call to the inbox */

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t opened;
	bool stop_asked, pause_asked, resume_asked;
	bool rules_given; /* new_rules are to be given to the inbox */
	struct config_list new_rules;
	bool told;        /* the result of the first open is known */
	struct err error; /* of the last failure; see status.works */
	struct deliver_status status;
};

/* --- the inbox ------------------------------------------------------------------------------ */

static void submit_messages(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	struct deliver *deliver = context;

	atomic_store(&deliver->source, inbox);
	http_sender_submit(deliver->sender, messages, count);
}

static bool holds_ticket(void *context, uint64_t ticket)
{
	struct deliver *deliver = context;

	return outbox_inbox_holds(atomic_load(&deliver->source), ticket);
}

/* If the partition was revoked, its new owner handles the message again and counts it. */
static void finish_messages(void *context, const struct outbox_inbox_end *ends, size_t count)
{
	struct deliver *deliver = context;
	struct outbox_error error;

	if (!outbox_inbox_finish(atomic_load(&deliver->source), ends, count, &error))
		log_debug("deliver_ended_in_vain", {"section", LOG_TEXT(deliver->section->name)},
		    {"error", LOG_TEXT(error.message)});
}

static void note_stats(struct deliver *deliver)
{
	struct http_sender_status sender = http_sender_status(deliver->sender);
	struct deliver_status *status = &deliver->status;
	struct outbox_inbox_stats stats;

	outbox_inbox_stats(deliver->inbox, &stats);
	deliver_metrics_note(deliver->metrics, &stats, sender.figures.breaker);
	pthread_mutex_lock(&deliver->mutex);
	status->inbox_turn_ms = clock_ms() - stats.turn_ms;
	status->partitions = stats.partitions;
	status->blocked = stats.blocked;
	status->messages = stats.messages;
	status->in_progress = stats.in_progress;
	status->handled = deliver->handled_before + stats.handled;
	status->dead_letters = deliver->dead_before + stats.dead_letters;
	pthread_mutex_unlock(&deliver->mutex);
}

/* The next one counts from 0. */
static void note_closed(struct deliver *deliver)
{
	struct deliver_status *status = &deliver->status;

	pthread_mutex_lock(&deliver->mutex);
	deliver->handled_before = status->handled;
	deliver->dead_before = status->dead_letters;
	status->inbox_turn_ms = 0;
	status->partitions = status->blocked = 0;
	status->messages = status->in_progress = 0;
	pthread_mutex_unlock(&deliver->mutex);
}

/*
 * The HTTP sender rests before the inbox is closed, so that no end of a message reaches a closed
 * inbox.
 */
static void close_inbox(struct deliver *deliver)
{
	outbox_inbox_pause(deliver->inbox, NULL, true);
	http_sender_rest(deliver->sender, deliver->section->drain_ms);
	/* The last figures, before the inbox that has them is gone. */
	note_stats(deliver);
	outbox_inbox_close(deliver->inbox);
	deliver->inbox = NULL;
	deliver_metrics_begin(deliver->metrics);
	note_closed(deliver);
}

/* --- its turns ------------------------------------------------------------------------------ */

/*
 * Notes the result of an attempt to open. Returns true the first time: then a caller waits for the
 * result and reports it.
 */
static bool note_open(struct deliver *deliver, const struct err *err)
{
	bool first;

	pthread_mutex_lock(&deliver->mutex);
	first = !deliver->told;
	deliver->told = true;
	deliver->status.works = !err;
	text_copy(deliver->status.error, sizeof deliver->status.error, err ? err->message : "");
	if (err)
		deliver->error = *err;
	pthread_cond_broadcast(&deliver->opened);
	pthread_mutex_unlock(&deliver->mutex);
	return first;
}

/* Are there rules that the inbox does not have yet? */
static bool take_rules(struct deliver *deliver)
{
	bool given;

	pthread_mutex_lock(&deliver->mutex);
	given = deliver->rules_given;
	deliver->rules_given = false;
	if (given) {
		config_list_finish(&deliver->now.rules);
		deliver->now.rules = deliver->new_rules;
		deliver->new_rules = (struct config_list){0};
	}
	pthread_mutex_unlock(&deliver->mutex);
	return given;
}

static void try_open(struct deliver *deliver, int64_t now)
{
	struct err err;
	bool first;

	/* Before the inbox exists: a sender at rest would end its first messages unsent. */
	http_sender_work(deliver->sender);
	deliver->pausing = false;
	take_rules(deliver);
	deliver->inbox = deliver_inbox_open(&deliver->now, submit_messages, deliver, &err);
	deliver->open_at = now + OPEN_AGAIN_MS;
	first = note_open(deliver, deliver->inbox ? NULL : &err);
	/* deliver_start returns the first error; only later ones need the log. */
	if (!deliver->inbox && !first)
		log_error("deliver_cannot_open", {"section", LOG_TEXT(deliver->section->name)},
		    {"error", LOG_TEXT(err.message)},
		    {"consequence", LOG_TEXT("nothing is delivered until it can")});
}

static void give_up_inbox(struct deliver *deliver, const struct outbox_error *error, int64_t now)
{
	struct err err;

	deliver_inbox_error(deliver->section, error, &err);
	log_error("deliver_failed", {"section", LOG_TEXT(deliver->section->name)},
	    {"error", LOG_TEXT(error->message)},
	    {"consequence", LOG_TEXT("its consumer is made anew in 10 s")});
	/* Before the drain, which may take long: the section must not seem to work meanwhile. */
	note_open(deliver, &err);
	close_inbox(deliver);
	deliver->open_at = now + OPEN_AGAIN_MS;
}

static void apply_pause(struct deliver *deliver)
{
	bool asked, resume;

	pthread_mutex_lock(&deliver->mutex);
	asked = deliver->pause_asked;
	resume = deliver->resume_asked;
	deliver->resume_asked = false;
	deliver->status.paused = asked;
	pthread_mutex_unlock(&deliver->mutex);

	/* to resume what is not paused tries the message of each blocked partition again */
	if (asked != deliver->pausing || resume)
		outbox_inbox_pause(deliver->inbox, NULL, asked);
	deliver->pausing = asked;
}

static void apply_rules(struct deliver *deliver)
{
	struct err err;

	/* They were checked: only a change of the machine since, as of a time zone, can fail. */
	if (take_rules(deliver) && !deliver_inbox_change_rules(
				       deliver->inbox, deliver->section, &deliver->now.rules, &err))
		log_error("deliver_rules_refused", {"section", LOG_TEXT(deliver->section->name)},
		    {"error", LOG_TEXT(err.message)},
		    {"consequence", LOG_TEXT("the rules stay as they were")});
}

static void look_after(struct deliver *deliver, int64_t now)
{
	struct outbox_error error;

	if (!deliver->inbox && now >= deliver->open_at)
		try_open(deliver, now);
	if (!deliver->inbox)
		return;
	apply_pause(deliver);
	apply_rules(deliver);
	note_stats(deliver);
	if (!outbox_inbox_works(deliver->inbox, &error))
		give_up_inbox(deliver, &error, now);
}

/* Returns whether it is to end. */
static bool begin_deliver_turn(struct deliver *deliver, int64_t now)
{
	eventfd_t ignored;
	bool ends;

	(void)eventfd_read(deliver->wake_fd, &ignored); /* fails when nobody called */
	pthread_mutex_lock(&deliver->mutex);
	ends = deliver->stop_asked;
	deliver->status.turn_ms = now;
	pthread_mutex_unlock(&deliver->mutex);
	return ends;
}

static void wait_for_turn(const struct deliver *deliver)
{
	struct pollfd polled = {.fd = deliver->wake_fd, .events = POLLIN};

	poll(&polled, 1, TURN_MS);
}

static void end_deliver(struct deliver *deliver)
{
	if (deliver->inbox)
		close_inbox(deliver);
	pthread_mutex_lock(&deliver->mutex);
	deliver->status.ended = true;
	deliver->status.works = false;
	pthread_mutex_unlock(&deliver->mutex);
	if (deliver->event_fd >= 0 && eventfd_write(deliver->event_fd, 1) != 0)
		log_debug("already_told", {"section", LOG_TEXT(deliver->section->name)});
}

static void *run_deliver(void *context)
{
	struct deliver *deliver = context;

	pthread_setname_np(pthread_self(), "deliver");
	for (;;) {
		int64_t now = clock_ms();

		if (begin_deliver_turn(deliver, now))
			break;
		look_after(deliver, now);
		wait_for_turn(deliver);
	}
	end_deliver(deliver);
	return NULL;
}

/* --- start and stop ------------------------------------------------------------------------- */

static void deliver_free(struct deliver *deliver)
{
	http_sender_stop(deliver->sender);
	deliver_metrics_destroy(deliver->metrics);
	if (deliver->wake_fd >= 0)
		close(deliver->wake_fd);
	pthread_cond_destroy(&deliver->opened);
	pthread_mutex_destroy(&deliver->mutex);
	config_list_finish(&deliver->now.rules);
	config_list_finish(&deliver->new_rules);
	free(deliver);
}

static bool start_deliver_thread(struct deliver *deliver, struct err *err)
{
	int error;

	deliver->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (deliver->wake_fd < 0)
		return err_set(err, ERR_FATAL, "no eventfd: %s", strerror(errno));
	error = pthread_create(&deliver->thread, NULL, run_deliver, deliver);
	return error == 0 || err_set(err, ERR_RETRY, "no thread for [deliver \"%s\"]: %s",
				 deliver->section->name, strerror(error));
}

static bool wait_until_open(struct deliver *deliver, struct err *err)
{
	bool works;

	pthread_mutex_lock(&deliver->mutex);
	while (!deliver->told)
		pthread_cond_wait(&deliver->opened, &deliver->mutex);
	works = deliver->status.works;
	if (!works)
		*err = deliver->error;
	pthread_mutex_unlock(&deliver->mutex);
	return works;
}

struct deliver *deliver_start(
    const struct config_deliver *section, bool held, int event_fd, struct err *err)
{
	struct deliver *deliver;

	if (!deliver_check(section, err))
		return NULL;
	deliver = xcalloc(1, sizeof *deliver);
	deliver->section = section;
	deliver->now = *section;
	config_list_copy(&deliver->now.rules, &section->rules);
	deliver->event_fd = event_fd;
	deliver->wake_fd = -1;
	deliver->status.turn_ms = clock_ms();
	deliver->pause_asked = deliver->status.held = held;

	pthread_mutex_init(&deliver->mutex, NULL);
	pthread_cond_init(&deliver->opened, NULL);
	deliver->metrics = deliver_metrics_create(section->name);
	deliver->sender = http_sender_start(&(struct http_sender_options){section, deliver->metrics,
						holds_ticket, finish_messages, deliver},
	    err);
	if (!deliver->sender || !start_deliver_thread(deliver, err)) {
		deliver_free(deliver);
		return NULL;
	}

	/* The thread opens the inbox, since it also reopens and closes it: one owner. */
	if (wait_until_open(deliver, err))
		return deliver;
	deliver_stop(deliver);
	deliver_join(deliver);
	return NULL;
}

static void wake_deliver(struct deliver *deliver)
{
	if (eventfd_write(deliver->wake_fd, 1) != 0)
		log_debug("already_told", {"section", LOG_TEXT(deliver->section->name)});
}

void deliver_stop(struct deliver *deliver)
{
	pthread_mutex_lock(&deliver->mutex);
	deliver->stop_asked = true;
	pthread_mutex_unlock(&deliver->mutex);
	wake_deliver(deliver);
}

void deliver_join(struct deliver *deliver)
{
	if (!deliver)
		return;
	pthread_join(deliver->thread, NULL);
	deliver_free(deliver);
}

void deliver_pause(struct deliver *deliver, bool pause, const char *since)
{
	pthread_mutex_lock(&deliver->mutex);
	deliver->status.held = false;
	text_copy(deliver->status.paused_at, sizeof deliver->status.paused_at, since);
	deliver->pause_asked = pause;
	deliver->resume_asked = !pause;
	pthread_mutex_unlock(&deliver->mutex);
	wake_deliver(deliver);
}

bool deliver_change_rules(
    struct deliver *deliver, const struct config_deliver *fresh, struct err *err)
{
	if (!deliver_check_rules(deliver->section, &fresh->rules, fresh->rules_file, err))
		return false;

	pthread_mutex_lock(&deliver->mutex);
	config_list_finish(&deliver->new_rules);
	config_list_copy(&deliver->new_rules, &fresh->rules);
	deliver->rules_given = true;
	pthread_mutex_unlock(&deliver->mutex);
	wake_deliver(deliver);
	return true;
}

const struct config_deliver *deliver_section(const struct deliver *deliver)
{
	return deliver->section;
}

struct deliver_status deliver_status(struct deliver *deliver)
{
	struct http_sender_status sender = http_sender_status(deliver->sender);
	struct deliver_status status;
	bool stops;

	pthread_mutex_lock(&deliver->mutex);
	status = deliver->status;
	stops = deliver->stop_asked;
	pthread_mutex_unlock(&deliver->mutex);
	status.sends = sender.figures;
	text_copy(status.last_error, sizeof status.last_error, sender.error);
	if (stops || sender.loop_ms < status.turn_ms) /* its own thread waits for the end */
		status.turn_ms = sender.loop_ms;
	return status;
}
