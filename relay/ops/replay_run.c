/*
 * The loop of a replay: read pages of rows, send at the given rate, store progress each second
 * under a lease, and stop on a signal or when a relay has to. Begin at replay_run.
 */
#include "replay_run.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include "cleanup.h"
#include "clock.h"
#include "logging.h"
#include "replay_pages.h"
#include "replay_send.h"
#include "database.h"

enum {
	NOTE_MS = 1000,
	LAST_REPORTS_MS = 2000, /* after a signal, wait for records under way */
	WAIT_MS = 100,
	SILENCE_MS = 10000, /* after this time without an acknowledgement, logs the reason */
	BURST_US = 100000,  /* delay that a rate may catch up */
};

DEFINE_OWNED(struct replay_send, replay_send_destroy)

struct run {
	struct replay *replay;
	struct pg *pg; /* notes go over it */
	struct replay_send *send;
	struct replay_pages pages;
	const struct progress_watch *watch;
	const char *what;      /* for the watch */
	int signals, stop_fd;  /* one of them; -1: none */
	int64_t done_before;   /* what other runs acknowledged */
	int64_t noted;         /* rows of this run that were acknowledged at the last note */
	int64_t due_us;        /* the next record, with a rate */
	int64_t seen, seen_ms; /* rows acknowledged, and the time of the last change or report */
	int64_t stop_ms;       /* a signal came: end by this time; 0: none came */
};

/* --- the rate -------------------------------------------------------------------------------- */

static int64_t records_allowed_by_rate(struct run *run)
{
	int64_t now = clock_us(), rate = run->replay->rate;

	if (rate == 0)
		return INT64_MAX;

	/* after a pause, for example without Kafka, the replay does not catch up all at once */
	if (run->due_us < now - BURST_US)
		run->due_us = now - BURST_US;
	return run->due_us > now ? 0 : (now - run->due_us) * rate / 1000000 + 1;
}

static void have_sent(struct run *run, int64_t count)
{
	if (run->replay->rate)
		run->due_us += count * 1000000 / run->replay->rate;
}

/* --- notes ----------------------------------------------------------------------------------- */

static bool note_replay_progress(
    struct run *run, const char *state, const char *error, struct err *err)
{
	struct replay_send_state now = replay_send_state(run->send);

	if (!replay_note(
		run->replay, run->pg, now.last_id, run->done_before + now.done, state, error, err))
		return false;
	run->noted = now.acknowledged;
	return true;
}

static int64_t note_every(const struct run *run)
{
	int64_t third = run->replay->publisher->lease_ms / 3;

	return third < NOTE_MS ? third : NOTE_MS;
}

/*
 * Notes the progress each second, and sooner if the records that a crash would repeat are about to
 * reach their limit, which would stop the sending.
 */
static bool note_if_due(struct run *run, struct err *err)
{
	struct replay_send_state now = replay_send_state(run->send);

	if (clock_ms() - run->replay->noted_ms < note_every(run) &&
	    now.acknowledged - run->noted <
		(publisher_settings_in_flight(run->replay->publisher) + 1) / 2)
		return true;
	return note_replay_progress(run, "running", NULL, err);
}

/* --- a turn ---------------------------------------------------------------------------------- */

static bool has_lease(const struct run *run)
{
	return clock_ms() - run->replay->noted_ms < run->replay->publisher->lease_ms;
}

static void look_for_signal(struct run *run)
{
	struct signalfd_siginfo signal;
	struct pollfd stop = {.fd = run->stop_fd, .events = POLLIN};

	if (run->stop_ms)
		return;
	/* the descriptor belongs to other waits as well: it stays readable */
	if (run->stop_fd >= 0 ? poll(&stop, 1, 0) > 0
			      : read(run->signals, &signal, sizeof signal) == sizeof signal)
		run->stop_ms = clock_ms() + LAST_REPORTS_MS;
}

static void warn_of_silence(struct run *run)
{
	struct replay_send_state state = replay_send_state(run->send);
	int64_t now = clock_ms();

	progress_watch_step(run->watch, run->what, run->done_before + state.acknowledged);
	/* with nothing to acknowledge, silence is no sign of trouble */
	if (state.acknowledged > run->seen || state.unacked == 0) {
		run->seen = state.acknowledged;
		run->seen_ms = now;
	} else if (now - run->seen_ms >= SILENCE_MS) {
		run->seen_ms = now;
		log_warn("replay_waits", {"replay", LOG_INT(run->replay->id)},
		    {"reason", LOG_TEXT(replay_send_error(run->send))},
		    {"consequence", LOG_TEXT("the replay goes on by itself")});
	}
}

static bool take_replay_turn(struct run *run, struct err *err)
{
	int64_t sent, most;

	look_for_signal(run);
	if (!note_if_due(run, err))
		return false;

	/* without a lease another process may have taken the replay: no new row goes out */
	most = run->stop_ms || !has_lease(run) ? 0 : records_allowed_by_rate(run);
	if (!replay_send_step(run->send, run->noted,
		publisher_settings_in_flight(run->replay->publisher), most, &sent, err))
		return false;
	have_sent(run, sent);
	warn_of_silence(run);
	/* after a signal only records under way are waited for, so no further page is read */
	return run->stop_ms || replay_pages_step(&run->pages, run->send, err);
}

static int64_t replay_wait_ms(const struct run *run)
{
	struct replay_send_state state = replay_send_state(run->send);
	int64_t wait = WAIT_MS, rate_ms = (run->due_us - clock_us()) / 1000 + 1;

	if (run->replay->rate && state.waiting > 0 && !run->stop_ms && rate_ms < wait)
		wait = rate_ms;
	return wait < 1 ? 1 : wait;
}

static void wait_for_something(const struct run *run)
{
	struct pollfd wanted[] = {
	    {.fd = run->stop_ms        ? -1
		   : run->stop_fd >= 0 ? run->stop_fd
				       : run->signals,
		.events = POLLIN},
	    {.fd = replay_send_fd(run->send), .events = POLLIN},
	    {.fd = run->pages.copying ? pg_fd(run->pages.pg) : -1,
		.events = run->pages.copying ? pg_events(run->pages.pg) : 0},
	};

	poll(wanted, sizeof wanted / sizeof *wanted, (int)replay_wait_ms(run));
}

/* --- beginning and end ----------------------------------------------------------------------- */

static bool is_replay_over(const struct run *run)
{
	struct replay_send_state state = replay_send_state(run->send);

	/* records without an acknowledgement are not noted, and go out again with --resume */
	if (run->stop_ms)
		return state.flying == 0 || clock_ms() >= run->stop_ms;
	return run->pages.finished && state.unacked == 0;
}

static bool work_until_over(struct run *run, struct err *err)
{
	for (;;) {
		if (!take_replay_turn(run, err))
			return false;
		if (is_replay_over(run))
			break;
		wait_for_something(run);
	}
	if (!run->stop_ms)
		return note_replay_progress(run, "finished", NULL, err);
	return note_replay_progress(
		   run, run->replay->by_relay ? "released" : "stopped", NULL, err) &&
	       err_set(err, ERR_RETRY, "stopped by a signal");
}

static bool say_how_to_go_on(const struct run *run, struct err *err)
{
	const struct replay *replay = run->replay;
	owned_text char *why = xstrdup(err->message);

	/* the other process goes on: nothing is to be resumed */
	if (err->kind == ERR_FENCED || replay->by_relay)
		return false;
	return err_set(err, err->kind,
	    "replay %" PRId64 ": %s; %" PRId64 " of %" PRId64
	    " rows are noted as published, `outbox-relay replay --resume %" PRId64 "` goes on",
	    replay->id, why, replay->done, replay->total, replay->id);
}

static void give_back_replay(struct run *run, const struct err *why)
{
	struct err ignored; /* the first error is reported */
	bool goes_on = run->replay->by_relay && why->kind != ERR_REJECT;

	/* a note of a fenced process would be refused; on a broken connection nothing can be
	 * noted, and the lease runs out by itself */
	if (why->kind != ERR_FENCED && pg_state(run->pg) == PG_IDLE)
		note_replay_progress(run, goes_on ? "released" : "stopped",
		    run->stop_ms ? NULL : why->message, &ignored);
}

static int make_signals(void)
{
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	return signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC);
}

bool replay_run(struct replay *replay, struct pg *pg, struct topic_metadata *metadata,
    const struct progress_watch *watch, int stop_fd, struct err *err)
{
	owned_fd int signals = stop_fd < 0 ? make_signals() : -1;
	owned_text char *what = xformat("published of %" PRId64, replay->total);
	OWNED(owned_pg_destroy)
	struct pg *reader = database_connect(replay->publisher->postgres, err);
	OWNED(owned_replay_send_destroy)
	struct replay_send *send = reader ? replay_send_create(replay->publisher, metadata,
						replay->id, replay->target, replay->last_id, err)
					  : NULL;
	struct run run = {.replay = replay,
	    .pg = pg,
	    .send = send,
	    .watch = watch,
	    .what = what,
	    .signals = signals,
	    .stop_fd = stop_fd,
	    .done_before = replay->done,
	    .due_us = clock_us(),
	    .seen_ms = clock_ms()};
	bool good = false;

	replay_pages_init(&run.pages, reader, replay);
	if (send) {
		progress_watch_step(watch, what, 0);
		good = work_until_over(&run, err);
		progress_watch_end(watch);
		if (!good)
			give_back_replay(&run, err);
	}
	replay_pages_finish(&run.pages);
	return good || say_how_to_go_on(&run, err);
}
