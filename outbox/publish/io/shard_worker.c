/*
 * The loop around a stream. Each turn lets the two connections and the producer make progress, asks
 * the stream for the next action on those that are idle, and waits for a file descriptor or the
 * stream's clock. The loop never waits for a server, so that the lease is renewed while Kafka is
 * away, a page is slow or the other connection is being made. Only short calls block: a question
 * about a topic that has grown (record_sender_knows), the end of a producer (producer_destroy), and
 * the look-up of a host by name (pg_start).
 *
 * Read run_shard_worker first: a turn is its loop, and the sections follow the order of the turn.
 */
#include "shard_worker.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "cleanup.h"
#include "clock.h"
#include "record_sender.h"
#include "fault.h"
#include "link.h"
#include "logging.h"
#include "publish_metrics.h"
#include "resume.h"
#include "statements.h"
#include "trace.h"

enum {
	ROWS_A_TURN = 512,
	TOPICS_MAX_AGE_MS = 30000,
	TOPICS_ASK_MS = 1000,
	UNREADY_ASK_MS = 5,
	TOPICS_A_TURN = 256,
	STATUS_MS = 100,
	LONGEST_WAIT_MS = 1000,
	PATIENCE_MS = 5, /* delay of reports that nothing waits for */
	/* Pauses between looks for windows if poll_busy is 0, which is shorter than the stream's
	 * clock can say. None after many rows: more of a backlog may follow. While calls take
	 * BUSY_CALL_US on average, the machine is busy: broker and writers get more of its time. */
	PAUSE_FOUND_US = 400,
	PAUSE_IDLE_US = 500,
	PAUSE_BUSY_US = 2000,
	BUSY_CALL_US = 1200,
	CALLS_AVERAGED = 16,
	MANY_ROWS = 64,
	GATHER_MS = 20, /* delay of the rows of a page */
	GATHER_ROWS = 8192,
	NAP_US = 500,      /* between reads of a page whose rows are gathered */
	GRACE_PART = 4,    /* grace after a statement's limit: a quarter of the limit */
	RELEASE_MS = 2500, /* time to end a producer that is given up and write the last row */
};

struct shard_worker {
	struct shard_worker_options options;
	pthread_t thread;
	int event_fd, wake_fd, metadata_fd;
	atomic_bool stop_asked;

	/* the thread's own */
	struct stream *stream;
	struct statements *statements;
	struct record_sender *sender;
	struct resume *resume;
	struct publish_metrics metrics;
	struct link log, read;
	enum stream_call log_call; /* the call in flight on the log connection */
	int64_t log_call_at;       /* when it was sent */
	int64_t log_call_at_us;    /* the same, more exactly */
	int64_t call_us;           /* how long a TICK takes, on average */
	int64_t log_call_by;       /* without an answer by then it is cancelled */
	int64_t look_at_us;        /* no log call before, with poll_busy = 0; 0: now */
	bool found;                /* the last TICK brought rows */
	int64_t read_by;           /* deadline of the read connection's answer */
	int64_t read_at;
	bool reading, copying; /* a statement is in flight on the read connection; it is a page */
	bool first_row;        /* the next row is the page's first */
	struct stream_page page;
	int64_t page_rows, page_bytes, page_id; /* the page so far, and its last row */
	int64_t gathered, gather_until;         /* rows that wait for the next turn of the sender */
	int64_t topics_asked_at, unready_asked_at, status_at, stop_at;
	bool topics_told;          /* metadata_fd was written: a topic changed */
	int seat;                  /* at the doorbell; -1: there is none */
	struct stream_looks looks; /* as far as the doorbell knows them */
	int topics_to_ask;         /* topics in use that are left in this round */
	int64_t lost_seen, refusals_seen;
	int stalls_seen;
	bool owned, refusal_logged, elsewhere_logged, guard_logged, drained;
	char missing_logged[256];
	char denied_logged[256];
	char holder[128];

	pthread_mutex_t mutex; /* protects the members below */
	struct shard_worker_status status;
	struct stream_settings settings;
	bool settings_changed;
};

static struct stream_settings stream_settings_of(const struct publisher_settings *publisher)
{
	return (struct stream_settings){
	    .max_in_flight = publisher_settings_in_flight(publisher),
	    .memory = publisher->memory,
	    .lease_ms = publisher->lease_ms,
	    .poll_busy_ms = publisher->poll_busy_ms,
	    .poll_idle_ms = publisher->poll_idle_ms,
	    .ack_interval_ms = publisher->ack_interval_ms,
	    .stall_after_ms = publisher->stall_after_ms,
	    .topic_idle_ms = publisher->topic_idle_ms,
	    .resumes = publisher->resume == RESUME_TAIL,
	    .transactions = publisher->delivery == DELIVERY_EXACTLY_ONCE,
	    .parking = {.retry_first_ms = publisher->retry_first_ms,
		.retry_max_ms = publisher->retry_max_ms,
		.max_attempts = publisher->max_attempts,
		.policy = publisher->policy,
		.refused_topic = publisher->refused_topic,
		.context = publisher->context},
	    .seed = (uint64_t)clock_random(),
	};
}

/* --- the log connection -------------------------------------------------------------------- */

static void log_problem(struct shard_worker *shard_worker, const char *event, const struct err *err)
{
	log_warn(event, {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
	    {"shard", LOG_INT(shard_worker->options.shard)}, {"error", LOG_TEXT(err->message)});
}

/* A TAKE needs the permission of the limiter: only then is the stream asked for its call. */
static bool may_send_log_call(
    struct shard_worker *shard_worker, const struct stream_status *status, int64_t now)
{
	return status->state != STREAM_STANDBY ||
	       take_limiter_begin(shard_worker->options.take_limiter, now);
}

static void end_take(struct shard_worker *shard_worker, int64_t now)
{
	struct stream_status status = stream_status(shard_worker->stream, now);
	take_limiter_end(shard_worker->options.take_limiter, now, status.state == STREAM_OWNER);
}

/*
 * The server ends a statement after the limit. The relay cancels statements that the server does
 * not end: a COMMIT that waits for a standby, and a statement that a pooler holds. This deadline
 * leaves time within the lease for the look-up and for a RENEW.
 */
static int64_t statement_deadline(const struct shard_worker *shard_worker, int64_t now)
{
	return now + shard_worker->log.limit_ms + shard_worker->log.limit_ms / GRACE_PART + 1;
}

static int64_t pause_before_look_us(const struct shard_worker *shard_worker)
{
	int64_t left = shard_worker->look_at_us ? shard_worker->look_at_us - clock_us() : 0;
	return left > 0 ? left : 0;
}

/* A TICK is answered, and has found that many rows. */
static void set_pause(struct shard_worker *shard_worker, uint64_t rows)
{
	shard_worker->found = rows > 0;
	bool pauses = stream_polls_at_once(shard_worker->stream) && rows < MANY_ROWS;
	int64_t now_us = clock_us(), took_us = now_us - shard_worker->log_call_at_us;

	shard_worker->call_us += (took_us - shard_worker->call_us) / CALLS_AVERAGED;
	int64_t pause_us = shard_worker->call_us >= BUSY_CALL_US ? PAUSE_BUSY_US
			   : rows                                ? PAUSE_FOUND_US
								 : PAUSE_IDLE_US;
	shard_worker->look_at_us = pauses ? now_us + pause_us : 0;
}

/* --- the doorbell ---------------------------------------------------------------------------- */

static void heed_wake(struct shard_worker *shard_worker, int64_t now)
{
	struct doorbell *doorbell = shard_worker->options.doorbell;
	if (doorbell && doorbell_take_wake(doorbell, shard_worker->seat))
		stream_hurry(shard_worker->stream, now);
}

/* The call is sent after this: the doorbell counts a look that began under its lock. */
static void note_look_begins(struct shard_worker *shard_worker, const struct stream_tick *call)
{
	struct doorbell *doorbell = shard_worker->options.doorbell;
	if (doorbell && call->may_open)
		doorbell_look_begins(doorbell, shard_worker->seat);
}

/* An answer came: tells the doorbell what it shows, and then dozes if it may. */
static void note_looks(struct shard_worker *shard_worker, int64_t now)
{
	struct doorbell *doorbell = shard_worker->options.doorbell;
	struct stream_looks looks = stream_looks(shard_worker->stream);
	struct stream_looks before = shard_worker->looks;
	if (!doorbell)
		return;

	shard_worker->looks = looks;
	if (looks.made != before.made)
		doorbell_look_ends(doorbell, shard_worker->seat, looks.found != before.found);
	if (looks.rows != before.rows)
		doorbell_rows_came(doorbell, shard_worker->seat);
	if (looks.tried != before.tried && doorbell_may_doze(doorbell, shard_worker->seat))
		stream_doze(shard_worker->stream, now, BELL_POLL_MS);
}

/* --- calls on the log connection ------------------------------------------------------------- */

static void send_log_call(struct shard_worker *shard_worker, int64_t now)
{
	struct stream_status status = stream_status(shard_worker->stream, now);
	struct err err;
	/* One log call at a time: its answer decides the next row. */
	if (pause_before_look_us(shard_worker) > 0 ||
	    !may_send_log_call(shard_worker, &status, now))
		return;

	struct stream_tick call = stream_log_call(shard_worker->stream, now);
	shard_worker->log_call = call.call;
	shard_worker->log_call_at = now;
	shard_worker->log_call_at_us = clock_us();
	shard_worker->log_call_by = statement_deadline(shard_worker, now);
	if (call.call != STREAM_TAKE && status.state == STREAM_STANDBY)
		take_limiter_end(shard_worker->options.take_limiter, now, false);
	if (call.call == STREAM_NONE)
		return;

	note_look_begins(shard_worker, &call);
	fault_point("before_log_call");
	trace_step("asked", call.call, 0);
	if (!statements_send_call(shard_worker->statements, &shard_worker->log, &call, &err)) {
		stream_log_failed(shard_worker->stream, now, true, false);
		if (call.call == STREAM_TAKE)
			end_take(shard_worker, now);
		shard_worker->log_call = STREAM_NONE;
		link_drop(&shard_worker->log, now, &err);
	}
	fault_point("after_log_call");
}

/* The call failed after its whole limit: the server ended it, or we gave it up. */
static bool is_log_call_late(const struct shard_worker *shard_worker, int64_t now)
{
	return now - shard_worker->log_call_at >= shard_worker->log.limit_ms;
}

static void log_call_failed(struct shard_worker *shard_worker, int64_t now, const struct err *err)
{
	if (err && !shard_worker->log.ending)
		link_failed(&shard_worker->log, now, err);
	bool lost = !shard_worker->log.pg || shard_worker->log.ending ||
		    pg_state(shard_worker->log.pg) == PG_LOST;
	enum stream_call call = shard_worker->log_call;
	shard_worker->log_call = STREAM_NONE;
	bool fenced =
	    err && err->kind == ERR_FENCED; /* this is no failure: another owner was first */
	if (err && !fenced)
		log_problem(shard_worker, "log_call_failed", err);

	if (fenced && call == STREAM_TICK)
		stream_ticked(shard_worker->stream, now, STREAM_FENCED);
	else if (fenced && call == STREAM_RENEW)
		stream_renewed(shard_worker->stream, now, false);
	else
		stream_log_failed(
		    shard_worker->stream, now, lost, is_log_call_late(shard_worker, now));
	if (call == STREAM_TAKE)
		end_take(shard_worker, now);
}

/*
 * After a take, a statement in flight on the read connection belongs to the time before, and may
 * run on a server that was left in a failover: its answer may be wrong now, or never come.
 */
static void leave_reading(struct shard_worker *shard_worker, int64_t now)
{
	link_cancel(&shard_worker->read, now);
	statements_forget_bounds(shard_worker->statements);
	if (shard_worker->reading)
		stream_read_failed(shard_worker->stream, now);
	shard_worker->reading = shard_worker->copying = false;
}

static void take_log_answer(
    struct shard_worker *shard_worker, const struct pg_result *result, int64_t now)
{
	struct err err;
	bool done;
	enum stream_call call = shard_worker->log_call;
	fault_point(call == STREAM_TAKE ? "after_take" : "after_tick");
	uint64_t sequence = stream_next_sequence(shard_worker->stream);

	/* A tick after a look needs the whole limit, but both must end within the call's limit. */
	bool slow = now - shard_worker->log_call_at >= shard_worker->log.limit_ms / GRACE_PART;
	bool good = statements_answer(shard_worker->statements, &shard_worker->log, result,
	    shard_worker->stream, now, slow, shard_worker->holder, sizeof shard_worker->holder,
	    &done, &err);
	if (!good)
		log_problem(shard_worker, "log_answer_unusable", &err);
	if (!done && good)
		return;

	shard_worker->log_call = STREAM_NONE;
	if (!good) {
		link_drop(&shard_worker->log, now, &err);
		stream_log_failed(shard_worker->stream, now, true, false);
	}
	if (call == STREAM_TAKE) {
		leave_reading(shard_worker, now);
		end_take(shard_worker, now);
	}

	trace_step(
	    "answered", (int64_t)sequence, (int64_t)stream_next_sequence(shard_worker->stream));
	if (call == STREAM_TICK)
		set_pause(shard_worker, stream_next_sequence(shard_worker->stream) - sequence);
	note_looks(shard_worker, now);
	const struct message *newest = stream_message(shard_worker->stream, sequence);
	if (newest)
		publish_metrics_read(&shard_worker->metrics, sequence, newest->due_us);
}

/* Gives up a call that is late; a later call finds out whether the server executed it. */
static void check_deadline(struct shard_worker *shard_worker, int64_t now)
{
	struct err err;
	if (shard_worker->log_call == STREAM_NONE || now < shard_worker->log_call_by ||
	    !shard_worker->log.pg)
		return;
	err_set(&err, ERR_RETRY, "%s: no answer within a third of the lease; it is cancelled",
	    pg_place(shard_worker->log.pg));
	link_cancel(&shard_worker->log, now);
	log_call_failed(shard_worker, now, &err);
}

static void step_log_link(struct shard_worker *shard_worker, int64_t now)
{
	check_deadline(shard_worker, now);
	enum link_event event = link_step(&shard_worker->log, now);
	/* The call may have committed: the stream looks it up by its nonce. */
	if (event == LINK_LOST && shard_worker->log_call != STREAM_NONE)
		log_call_failed(shard_worker, now, NULL);
	if (event == LINK_ANSWER) {
		struct err err;
		bool done;
		OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
		if (!pg_receive(shard_worker->log.pg, &done, &result, &err))
			log_call_failed(shard_worker, now, &err);
		else if (done)
			take_log_answer(shard_worker, result, now);
		else
			return;
		event = shard_worker->log.pg && pg_state(shard_worker->log.pg) == PG_IDLE
			    ? LINK_READY
			    : LINK_NONE;
	}

	if (event == LINK_READY && shard_worker->log_call == STREAM_NONE)
		send_log_call(shard_worker, now);
}

/* --- the read connection ------------------------------------------------------------------- */

static void read_failed(struct shard_worker *shard_worker, int64_t now, const struct err *err)
{
	if (now - shard_worker->read_at >= shard_worker->read.limit_ms)
		statements_page_late(shard_worker->statements, shard_worker->copying);
	else
		statements_forget_bounds(shard_worker->statements);
	shard_worker->reading = shard_worker->copying = false;
	stream_read_failed(shard_worker->stream, now);
	log_problem(shard_worker, "page_failed", err);
	if (!shard_worker->read.ending)
		link_failed(&shard_worker->read, now, err);
}

static void check_read_deadline(struct shard_worker *shard_worker, int64_t now)
{
	struct err err;
	if (!shard_worker->reading || now < shard_worker->read_by || !shard_worker->read.pg)
		return;
	err_set(&err, ERR_RETRY, "%s: no page within a third of the lease; it is cancelled",
	    pg_place(shard_worker->read.pg));
	link_cancel(&shard_worker->read, now);
	read_failed(shard_worker, now, &err);
}

static void request_page(struct shard_worker *shard_worker, int64_t now)
{
	struct err err;
	shard_worker->page = stream_read_call(shard_worker->stream, now);
	/* The stream wants no rows: its memory is full, or all windows are read. */
	if (!shard_worker->page.wanted)
		return;
	shard_worker->read_at = now;
	shard_worker->read_by = statement_deadline(shard_worker, now);
	if (!statements_send_page(shard_worker->statements, &shard_worker->read,
		&shard_worker->page, now, &shard_worker->copying, &err)) {
		read_failed(shard_worker, now, &err);
		link_drop(&shard_worker->read, now, &err);
		return;
	}

	shard_worker->reading = true;
	shard_worker->first_row = true;
	shard_worker->page_rows = shard_worker->page_bytes = 0;
}

static void take_bounds(struct shard_worker *shard_worker, int64_t now)
{
	struct err err;
	bool done;
	OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
	if (!pg_receive(shard_worker->read.pg, &done, &result, &err) ||
	    (done && !statements_bounds(shard_worker->statements, result, &err)))
		read_failed(shard_worker, now, &err);
	else if (done)
		shard_worker->reading = false;
}

static bool is_too_large(const struct shard_worker *shard_worker)
{
	return shard_worker->page_bytes >= shard_worker->page.bytes &&
	       shard_worker->page_rows < shard_worker->page.rows;
}

/*
 * *ret_cut: the page is too large already, and the row comes again with the next page. That begins
 * behind the last id, so rows with the same id must not be separated.
 */
static bool take_copied_row(
    struct shard_worker *shard_worker, char *row, int length, bool *ret_cut, struct err *err)
{
	struct message message;
	enum copy_kind kind;
	if (!message_from_copy(row, length, shard_worker->first_row,
		statements_usual_topic(shard_worker->statements), &message, &kind, err))
		return false;
	shard_worker->first_row = false;
	if (kind == COPY_TRAILER)
		return true;

	if (is_too_large(shard_worker) && message.id != shard_worker->page_id) {
		message_release(&message);
		*ret_cut = true;
		return true;
	}

	shard_worker->page_id = message.id;
	statements_note_topic(shard_worker->statements, message.topic, message.topic_length);
	publish_metrics_read(
	    &shard_worker->metrics, stream_next_sequence(shard_worker->stream), message.due_us);
	stream_row(shard_worker->stream, &message);
	shard_worker->page_rows++;
	shard_worker->gathered++;
	shard_worker->page_bytes += length;
	return true;
}

/* cut: the page ended early, and rows of it are missing. */
static void end_row_page(struct shard_worker *shard_worker, int64_t now, bool cut)
{
	bool full = cut || shard_worker->page_rows >= shard_worker->page.rows;
	int64_t upto_id;
	shard_worker->reading = shard_worker->copying = false;
	fault_point("after_page");
	note_looks(shard_worker, now);
	bool last = statements_page_over(
	    shard_worker->statements, now, shard_worker->read.limit_ms, full, &upto_id);
	stream_page_end(shard_worker->stream, now, last, upto_id);
}

/*
 * Ends a page of unexpectedly large rows early: the received rows count, the next page begins
 * behind them. Cancels the rest of the page and closes the connection.
 */
static void cut_page(struct shard_worker *shard_worker, int64_t now)
{
	link_cancel(&shard_worker->read, now);
	end_row_page(shard_worker, now, true);
}

/*
 * True: more rows may be there at once. libpq reads at most 16 KiB at a time, so the turn reads
 * again until no row comes.
 */
static bool take_copied_rows(struct shard_worker *shard_worker, int64_t now)
{
	struct err err;
	bool came = false;
	for (int i = 0; i < ROWS_A_TURN; i++) {
		enum pg_copy what;
		char *row;
		int length;
		bool waits, good = pg_copy_next(shard_worker->read.pg, &what, &row, &length, &err);
		waits = good && what == PG_COPY_WAIT;
		if (waits && !came)
			return false;
		if (!good || (waits && !pg_step(shard_worker->read.pg, &err))) {
			read_failed(shard_worker, now, &err);
			return false;
		}
		came = !waits;
		if (waits)
			continue;
		if (what == PG_COPY_END) {
			end_row_page(shard_worker, now, false);
			return true;
		}

		bool cut = false;
		if (!take_copied_row(shard_worker, row, length, &cut, &err)) {
			link_cancel(&shard_worker->read, now);
			read_failed(shard_worker, now, &err);
			return false;
		}
		if (cut) {
			cut_page(shard_worker, now);
			return false;
		}
	}
	return true;
}

static bool step_read_link(struct shard_worker *shard_worker, int64_t now)
{
	bool more = false;
	if (!shard_worker->owned && !shard_worker->read.pg)
		return false;

	check_read_deadline(shard_worker, now);
	enum link_event event = link_step(&shard_worker->read, now);
	if (event == LINK_LOST)
		leave_reading(shard_worker, now);
	if (event == LINK_ANSWER && shard_worker->copying)
		more = take_copied_rows(shard_worker, now);
	else if (event == LINK_ANSWER)
		take_bounds(shard_worker, now);

	bool idle = shard_worker->read.pg && !shard_worker->read.ending &&
		    shard_worker->read.stage == LINK_KNOWN &&
		    pg_state(shard_worker->read.pg) == PG_IDLE;
	if (idle && !shard_worker->reading)
		request_page(shard_worker, now);
	return more;
}

/* --- topics, status, ends --------------------------------------------------------------------- */

/* With safety = strict a topic stays closed until a check has found it safe. */
static bool is_topic_safe(struct shard_worker *shard_worker, const char *topic)
{
	const struct shard_worker_options *options = &shard_worker->options;
	return !options->topic_checks ||
	       topic_checks_allow(options->topic_checks, topic, options->publisher->safety);
}

/* The producer must know new partitions: it refuses records for a partition it does not know. */
static bool is_partition_known(struct shard_worker *shard_worker, const char *topic, int32_t logged,
    int32_t partitions, int64_t now)
{
	return logged == 0 || partitions <= logged ||
	       record_sender_knows(shard_worker->sender, topic, partitions, now);
}

static void ask_topic(
    struct shard_worker *shard_worker, const char *name, int32_t logged, int64_t now)
{
	struct known_topic topic =
	    topic_metadata_get(shard_worker->options.metadata, name, TOPICS_MAX_AGE_MS);
	if (topic.state == TOPIC_MISSING) {
		stream_topic(shard_worker->stream, name, 0);
		stream_topic_answered(shard_worker->stream, name, topic.answered_ms);
	} else if (topic.state == TOPIC_THERE && is_topic_safe(shard_worker, name) &&
		   is_partition_known(shard_worker, name, logged, topic.partitions, now)) {
		stream_topic(shard_worker->stream, name, topic.partitions);
	}
}

/* Asks about at most `count` topics, and at most as many as fit a turn; returns how many. */
static int ask_some_topics(struct shard_worker *shard_worker, bool unready, int count, int64_t now)
{
	const char *name;
	bool ready;
	int32_t logged;
	int asked = 0;
	while (asked < count && asked < TOPICS_A_TURN &&
	       (name = stream_next_topic(shard_worker->stream, unready, &ready, &logged))) {
		ask_topic(shard_worker, name, logged, now);
		asked++;
	}
	return asked;
}

static void close_idle_topics(struct shard_worker *shard_worker)
{
	char *name;
	while (stream_closed_topic(shard_worker->stream, &name)) {
		record_sender_close_topic(shard_worker->sender, name);
		free(name);
	}
}

/* True: some topics of this round are left. */
static bool ask_topics(struct shard_worker *shard_worker, int64_t now)
{
	close_idle_topics(shard_worker);

	if (shard_worker->topics_told || now - shard_worker->topics_asked_at >= TOPICS_ASK_MS) {
		shard_worker->topics_asked_at = now;
		shard_worker->topics_told = false;
		shard_worker->topics_to_ask = stream_topics(shard_worker->stream, false);
	}
	if (now - shard_worker->unready_asked_at >= UNREADY_ASK_MS) {
		shard_worker->unready_asked_at = now;
		ask_some_topics(shard_worker, true, stream_topics(shard_worker->stream, true), now);
	}
	if (shard_worker->topics_to_ask)
		shard_worker->topics_to_ask -=
		    ask_some_topics(shard_worker, false, shard_worker->topics_to_ask, now);
	if (stream_topics(shard_worker->stream, false) == 0)
		shard_worker->topics_to_ask = 0;
	return shard_worker->topics_to_ask > 0;
}

/*
 * Logs one line for all messages that were parked since the last call, with the last of them. They
 * are in outbox.parked, or will be with the next row of the log.
 */
static void log_parked_messages(
    struct shard_worker *shard_worker, const struct stream_status *status)
{
	int64_t count = status->refusals - shard_worker->refusals_seen;
	if (count == 0)
		return;
	shard_worker->refusals_seen = status->refusals;
	log_error("message_parked", {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
	    {"shard", LOG_INT(shard_worker->options.shard)},
	    {"topic", LOG_TEXT(status->refused_topic)}, {"id", LOG_INT(status->refused_id)},
	    {"error", LOG_TEXT(status->refused_error)}, {"refusals", LOG_INT(count)},
	    {"consequence", LOG_TEXT("publish refused, parked; later messages of its key wait "
				     "behind it (see outbox-relay parked)")});
}

static void log_deaths(struct shard_worker *shard_worker, const struct stream_status *status)
{
	if ((status->deaths > 0) == shard_worker->guard_logged)
		return;
	shard_worker->guard_logged = status->deaths > 0;
	if (status->deaths == 0)
		return;
	log_warn("one_at_a_time", {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
	    {"shard", LOG_INT(shard_worker->options.shard)}, {"deaths", LOG_INT(status->deaths)},
	    {"consequence", LOG_TEXT("its owners died without progress: messages go one by one "
				     "until it is known which of them kills the relay")});
}

static void log_stalls(struct shard_worker *shard_worker, const struct stream_status *status)
{
	if (status->stalls == shard_worker->stalls_seen)
		return;

	bool more = status->stalls > shard_worker->stalls_seen;
	shard_worker->stalls_seen = status->stalls;
	log_warn(more ? "partition_stalled" : "partition_recovered",
	    {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
	    {"shard", LOG_INT(shard_worker->options.shard)}, {"stalled", LOG_INT(status->stalls)},
	    {"consequence",
		LOG_TEXT(more ? "it took nothing for stall_after, or answers with errors: its "
				"records are parked until it takes some (see outbox-relay "
				"parked list state=stalled)"
			      : "its parked records follow in order")});
}

static void log_refusal(struct shard_worker *shard_worker, const struct stream_status *status)
{
	if (!status->refused || shard_worker->refusal_logged)
		return;
	shard_worker->refusal_logged = true;
	log_error("publisher_stopped",
	    {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
	    {"shard", LOG_INT(shard_worker->options.shard)},
	    {"topic", LOG_TEXT(status->refused_topic)}, {"id", LOG_INT(status->refused_id)},
	    {"error", LOG_TEXT(status->refused_error)},
	    {"consequence", LOG_TEXT("Kafka refuses this row for good; nothing of its key passes "
				     "it; mend the topic or the row, then restart")});
}

static void note_elsewhere(struct shard_worker *shard_worker)
{
	bool elsewhere = statements_elsewhere(shard_worker->statements);

	metric_set(shard_worker->metrics.elsewhere, elsewhere);
	if (elsewhere && !shard_worker->elsewhere_logged)
		log_error("publisher_elsewhere",
		    {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
		    {"shard", LOG_INT(shard_worker->options.shard)},
		    {"consequence",
			LOG_TEXT("its rows were carried here from another database cluster (a "
				 "dump, logical replication), and their transaction ids mean "
				 "nothing here; nothing is published")},
		    {"cure", LOG_TEXT("`outbox-relay publisher rebase --all --reason TEXT`")});
	shard_worker->elsewhere_logged = elsewhere;
}

/* The topic if it is missing; rows also wait while Kafka has not said whether it exists. */
static const char *missing_topic(struct shard_worker *shard_worker, const char *waited_for)
{
	if (!waited_for)
		return NULL;
	struct known_topic topic =
	    topic_metadata_get(shard_worker->options.metadata, waited_for, TOPICS_MAX_AGE_MS);
	return topic.state == TOPIC_MISSING ? waited_for : NULL;
}

static void log_missing(struct shard_worker *shard_worker, const char *topic)
{
	if (text_equal(topic ? topic : "", shard_worker->missing_logged))
		return;
	text_copy(shard_worker->missing_logged, sizeof shard_worker->missing_logged, topic);
	if (topic)
		log_warn("topic_missing",
		    {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
		    {"shard", LOG_INT(shard_worker->options.shard)}, {"topic", LOG_TEXT(topic)},
		    {"consequence", LOG_TEXT("its rows wait until the topic exists")},
		    {"cure", LOG_TEXT("create the topic, or correct its name in the application")});
}

static void log_denied(struct shard_worker *shard_worker, const struct stream_status *status)
{
	const char *topic = status->denied_topic;

	if (text_equal(topic ? topic : "", shard_worker->denied_logged))
		return;
	text_copy(shard_worker->denied_logged, sizeof shard_worker->denied_logged, topic);
	if (topic)
		log_warn("topic_denied",
		    {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
		    {"shard", LOG_INT(shard_worker->options.shard)}, {"topic", LOG_TEXT(topic)},
		    {"error", LOG_TEXT(status->denied_error)},
		    {"consequence",
			LOG_TEXT("its rows wait, and are parked from the fourth try on; it is "
				 "tried again after 1, 2, 4 … 60 seconds, other topics go on")},
		    {"cure", LOG_TEXT("without permission: allow the relay WRITE on the topic; "
				      "else the brokers' logs tell why they refuse")});
}

static void log_ownership(struct shard_worker *shard_worker, const struct stream_status *status)
{
	bool owns = status->state == STREAM_OWNER || status->state == STREAM_UNSURE;
	if (owns == shard_worker->owned)
		return;

	shard_worker->owned = owns;
	if (shard_worker->options.doorbell)
		doorbell_own(shard_worker->options.doorbell, shard_worker->seat, owns);
	if (!owns) {
		/* a shard that is handed over is released, one that is dropped is gone */
		metric_add(shard_worker->metrics.leases_lost, status->state == STREAM_STANDBY);
		take_limiter_lost(shard_worker->options.take_limiter);
		publish_metrics_forget(&shard_worker->metrics);
		resume_forget(shard_worker->resume);
		record_sender_forget(shard_worker->sender);
	}
	log_info(owns ? "shard_taken" : "shard_left",
	    {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
	    {"shard", LOG_INT(shard_worker->options.shard)},
	    {"state", LOG_TEXT(stream_states.rows[status->state].name)}, {"n", LOG_INT(status->n)});
}

static enum shard_worker_end worker_end_of(
    const struct shard_worker *shard_worker, const struct stream_status *status)
{
	switch (status->state) {
	case STREAM_GONE:
		return SHARD_WORKER_GONE;
	case STREAM_RELEASED:
		if (shard_worker->drained)
			return SHARD_WORKER_DRAINED;
		return shard_worker->options.drain &&
			       (status->refused || statements_elsewhere(shard_worker->statements))
			   ? SHARD_WORKER_REFUSED
			   : SHARD_WORKER_STOPPED;
	default:
		return SHARD_WORKER_RUNNING;
	}
}

static void write_status(struct shard_worker *shard_worker, const struct stream_status *status,
    int64_t now, enum shard_worker_end end)
{
	struct shard_worker_status *out = &shard_worker->status;

	pthread_mutex_lock(&shard_worker->mutex);
	out->end = end;
	out->state = status->state;
	out->loop_ms = now;
	out->lease_over = status->lease_over;
	out->full = status->full;
	out->elsewhere = statements_elsewhere(shard_worker->statements);
	out->refused = status->refused;
	out->refused_id = status->refused_id;
	text_copy(out->refused_topic, sizeof out->refused_topic, status->refused_topic);
	text_copy(out->refused_error, sizeof out->refused_error, status->refused_error);
	text_copy(out->missing_topic, sizeof out->missing_topic,
	    status->missing_topic ? status->missing_topic : status->denied_topic);
	text_copy(out->postgres_error, sizeof out->postgres_error,
	    shard_worker->log.error[0] ? shard_worker->log.error : shard_worker->read.error);
	text_copy(
	    out->kafka_error, sizeof out->kafka_error, record_sender_error(shard_worker->sender));
	text_copy(out->holder, sizeof out->holder, shard_worker->holder);
	pthread_mutex_unlock(&shard_worker->mutex);
}

/* Takes the settings that shard_worker_retune left for the thread. */
static void take_settings(struct shard_worker *shard_worker)
{
	pthread_mutex_lock(&shard_worker->mutex);
	bool changed = shard_worker->settings_changed;
	int64_t poll_busy_ms = shard_worker->settings.poll_busy_ms;
	if (changed)
		stream_retune(shard_worker->stream, &shard_worker->settings);
	shard_worker->settings_changed = false;
	pthread_mutex_unlock(&shard_worker->mutex);

	if (changed && shard_worker->options.doorbell)
		doorbell_set_pause(
		    shard_worker->options.doorbell, shard_worker->seat, poll_busy_ms);
}

static void note_links(struct shard_worker *shard_worker)
{
	int64_t lost = shard_worker->log.lost_count + shard_worker->read.lost_count;
	if (lost == shard_worker->lost_seen)
		return;

	metric_add(
	    shard_worker->metrics.postgres_reconnects, (double)(lost - shard_worker->lost_seen));
	shard_worker->lost_seen = lost;

	const char *why =
	    shard_worker->log.error[0] ? shard_worker->log.error : shard_worker->read.error;
	log_warn("postgres_lost", {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
	    {"shard", LOG_INT(shard_worker->options.shard)}, {"error", LOG_TEXT(why)},
	    {"consequence",
		LOG_TEXT(
		    "the shard connects again; another process takes over when the lease ends")});
}

/* Returns how the loop ends; SHARD_WORKER_RUNNING: it goes on. */
static enum shard_worker_end note_stream_status(struct shard_worker *shard_worker, int64_t now)
{
	struct stream_status status = stream_status(shard_worker->stream, now);
	enum shard_worker_end end = worker_end_of(shard_worker, &status);
	log_ownership(shard_worker, &status);
	log_deaths(shard_worker, &status);
	if (now < shard_worker->status_at && end == SHARD_WORKER_RUNNING)
		return end;

	shard_worker->status_at = now + STATUS_MS;
	status.missing_topic = missing_topic(shard_worker, status.missing_topic);
	log_parked_messages(shard_worker, &status);
	log_stalls(shard_worker, &status);
	log_refusal(shard_worker, &status);
	note_elsewhere(shard_worker);
	log_missing(shard_worker, status.missing_topic);
	log_denied(shard_worker, &status);
	note_links(shard_worker);
	publish_metrics_note(&shard_worker->metrics, &status);
	record_sender_note(shard_worker->sender);
	take_settings(shard_worker);
	write_status(shard_worker, &status, now, end);
	return end;
}

static void begin_worker_stop(struct shard_worker *shard_worker, int64_t now)
{
	fault_point("before_release");
	stream_stop(shard_worker->stream);
	if (!shard_worker->stop_at)
		shard_worker->stop_at =
		    now + shard_worker->options.publisher->lease_ms + RELEASE_MS;
}

static void check_worker_stop(struct shard_worker *shard_worker, int64_t now)
{
	struct stream_status status = stream_status(shard_worker->stream, now);
	bool in_vain = shard_worker->options.drain &&
		       (status.refused || statements_elsewhere(shard_worker->statements));
	if (atomic_load(&shard_worker->stop_asked) || in_vain)
		begin_worker_stop(shard_worker, now);
	if (shard_worker->options.drain && status.caught_up && !shard_worker->drained) {
		shard_worker->drained = true;
		begin_worker_stop(shard_worker, now);
	}
}

/* --- the loop -------------------------------------------------------------------------------- */

static int64_t stream_clock(struct shard_worker *shard_worker, int64_t now)
{
	const struct link *log = &shard_worker->log;
	if (shard_worker->log_call != STREAM_NONE || !log->pg || pg_state(log->pg) != PG_IDLE) {
		int64_t wait = stream_wait_offline(shard_worker->stream, now);
		bool asked = shard_worker->log_call != STREAM_NONE;
		return asked && shard_worker->log_call_by < wait ? shard_worker->log_call_by : wait;
	}
	int64_t wait = stream_wait(shard_worker->stream, now);
	if (stream_status(shard_worker->stream, now).state != STREAM_STANDBY)
		return wait;
	int64_t may_take = take_limiter_wait(shard_worker->options.take_limiter, now);
	return wait < may_take ? may_take : wait;
}

/* Empties an eventfd if poll reports it as readable; true: it was readable. */
static bool drain_eventfd(const struct pollfd *fd)
{
	eventfd_t count;
	return fd->revents && eventfd_read(fd->fd, &count) == 0;
}

static struct pollfd link_pollfd(const struct link *link)
{
	return link->pg ? (struct pollfd){.fd = pg_fd(link->pg), .events = pg_events(link->pg)}
			: (struct pollfd){.fd = -1};
}

/*
 * The rows of a page go to the producer in large groups. Each row that it gets wakes librdkafka's
 * thread, which sends the records that are there: a backlog would become many small requests, which
 * cost the broker most, and cost the time of the wake-ups here.
 */
static bool gathers_rows(const struct shard_worker *shard_worker, int64_t now)
{
	/* The end of a page follows its last row at once, and the next page should be asked for. */
	return shard_worker->copying && shard_worker->page_rows < shard_worker->page.rows &&
	       shard_worker->gathered > 0 && shard_worker->gathered < GATHER_ROWS &&
	       now < shard_worker->gather_until;
}

static bool step_sender(struct shard_worker *shard_worker, int64_t now)
{
	if (gathers_rows(shard_worker, now))
		return false;

	bool more = record_sender_step(shard_worker->sender, now);
	/* the rest of the group goes with the next turn */
	shard_worker->gathered = 0;
	shard_worker->gather_until = more ? now : now + GATHER_MS;
	return more;
}

/* The stream's clock counts milliseconds; two pauses are shorter. */
static int64_t microseconds_to_wait(
    const struct shard_worker *shard_worker, int64_t now, int64_t until)
{
	/* After rows the pause ends with its last millisecond; after none it is not shortened. */
	int64_t wait = shard_worker->found ? until * 1000 - clock_us() : (until - now) * 1000;
	int64_t look = pause_before_look_us(shard_worker);

	/* Before the end of the pause no call is sent, even one that is due. */
	if (until <= now && look > 0)
		wait = look;
	return wait;
}

enum { LOG_FD, READ_FD };

/*
 * The server sends a page in pieces of 8 KiB. A turn for each of them would cost both sides more
 * than the rows do; rows that are gathered need no turn, so a nap lets the socket collect pieces.
 */
static bool wait_for_fds(struct pollfd *fds, int count, int64_t wait_us, bool gathers)
{
	const struct timespec timeout = {wait_us / 1000000, wait_us % 1000000 * 1000};
	const struct timespec nap = {.tv_nsec = NAP_US * 1000};

	if (!gathers)
		return ppoll(fds, (nfds_t)count, &timeout, NULL) >= 0;
	/* bytes that have arrived, such as a part of a large row, are read at once */
	if (poll(fds, (nfds_t)count, 0) != 0)
		return true;
	fds[READ_FD].fd = -1;
	return ppoll(fds, (nfds_t)count, &nap, NULL) >= 0;
}

static void wait_for_worker_events(struct shard_worker *shard_worker, int64_t now)
{
	struct pollfd fds[7] = {0};
	int count = 0;
	bool gathers = gathers_rows(shard_worker, now);
	bool patient = gathers || (stream_is_patient(shard_worker->stream) &&
				      record_sender_wait(shard_worker->sender) == INT64_MAX);
	int64_t wait = now + (patient ? PATIENCE_MS : LONGEST_WAIT_MS);
	const int64_t clocks[] = {stream_clock(shard_worker, now), link_wait(&shard_worker->log),
	    shard_worker->reading ? shard_worker->read_by : INT64_MAX,
	    shard_worker->owned ? link_wait(&shard_worker->read) : INT64_MAX,
	    gathers ? shard_worker->gather_until : record_sender_wait(shard_worker->sender),
	    resume_wait(shard_worker->resume)};
	for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
		wait = clocks[i] < wait ? clocks[i] : wait;

	struct link *links[] = {[LOG_FD] = &shard_worker->log, [READ_FD] = &shard_worker->read};
	for (int i = 0; i < 2; i++)
		fds[count++] = link_pollfd(links[i]);
	struct pollfd *told = &fds[count++], *woken = &fds[count++];
	*told = (struct pollfd){.fd = shard_worker->metadata_fd, .events = POLLIN};
	*woken = (struct pollfd){.fd = shard_worker->wake_fd, .events = POLLIN};
	fds[count++] = (struct pollfd){.fd = resume_fd(shard_worker->resume), .events = POLLIN};
	int reports[2];
	record_sender_fds(shard_worker->sender, reports);
	for (int i = 0; i < 2 && !patient; i++)
		fds[count++] = (struct pollfd){.fd = reports[i], .events = POLLIN};

	int64_t wait_us = microseconds_to_wait(shard_worker, now, wait);
	bool polled = wait_us > 0 && wait_for_fds(fds, count, wait_us, gathers);
	for (int i = 0; i < 2; i++)
		links[i]->quiet = polled && !fds[i].revents;
	shard_worker->topics_told |= drain_eventfd(told);
	drain_eventfd(woken);
}

static void leave_doorbell(struct shard_worker *shard_worker)
{
	if (shard_worker->options.doorbell)
		doorbell_leave(shard_worker->options.doorbell, shard_worker->seat);
	shard_worker->options.doorbell = NULL;
}

static void *run_shard_worker(void *context)
{
	struct shard_worker *shard_worker = context;
	enum shard_worker_end end = SHARD_WORKER_RUNNING;

	pthread_setname_np(pthread_self(), "shard");
	while (end == SHARD_WORKER_RUNNING) {
		int64_t now = clock_ms();
		check_worker_stop(shard_worker, now);
		heed_wake(shard_worker, now);
		step_log_link(shard_worker, now);
		bool more = step_read_link(shard_worker, now);
		more |= resume_step(shard_worker->resume, now);
		more |= step_sender(shard_worker, clock_ms());
		more |= ask_topics(shard_worker, now);
		end = note_stream_status(shard_worker, now);
		if (shard_worker->stop_at && now >= shard_worker->stop_at &&
		    end == SHARD_WORKER_RUNNING)
			end = SHARD_WORKER_ABANDONED;
		if (!more && end == SHARD_WORKER_RUNNING)
			wait_for_worker_events(shard_worker, clock_ms());
	}

	fault_point("after_release");
	/* Not in shard_worker_join, which may come much later: the producer must send nothing now.
	 */
	record_sender_destroy(shard_worker->sender);
	shard_worker->sender = NULL;
	pthread_mutex_lock(&shard_worker->mutex);
	shard_worker->status.end = end;
	pthread_mutex_unlock(&shard_worker->mutex);

	if (shard_worker->log_call == STREAM_TAKE)
		end_take(shard_worker, clock_ms());
	if (shard_worker->owned)
		take_limiter_lost(shard_worker->options.take_limiter);
	leave_doorbell(shard_worker);
	uint64_t one = 1;
	if (write(shard_worker->event_fd, &one, sizeof one) < 0)
		log_error("event_not_written",
		    {"publisher", LOG_TEXT(shard_worker->options.publisher->name)},
		    {"consequence", LOG_TEXT("the process notices the end of the shard later")});
	return NULL;
}

static void shard_worker_free(struct shard_worker *shard_worker)
{
	take_limiter_count(shard_worker->options.take_limiter, -1);

	record_sender_destroy(shard_worker->sender);
	resume_destroy(shard_worker->resume);
	stream_destroy(shard_worker->stream);
	statements_destroy(shard_worker->statements);
	link_finish(&shard_worker->log);
	link_finish(&shard_worker->read);
	close(shard_worker->event_fd);
	close(shard_worker->wake_fd);
	close(shard_worker->metadata_fd);
	pthread_mutex_destroy(&shard_worker->mutex);
	free(shard_worker);
}

struct shard_worker *shard_worker_start(const struct shard_worker_options *options, struct err *err)
{
	const struct publisher_settings *publisher = options->publisher;
	struct shard_worker *shard_worker = xcalloc(1, sizeof *shard_worker);
	char name[96];

	shard_worker->options = *options;
	take_limiter_count(options->take_limiter, 1);
	shard_worker->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	shard_worker->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	shard_worker->metadata_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	pthread_mutex_init(&shard_worker->mutex, NULL);
	shard_worker->status.publisher = publisher->name;
	shard_worker->status.shard = options->shard;
	shard_worker->status.loop_ms = clock_ms();

	struct stream_settings settings = stream_settings_of(publisher);
	settings.turn = options->turn;
	settings.drains = options->drain;
	shard_worker->stream = stream_create(&settings);
	shard_worker->statements = statements_create(publisher->postgres->schema, publisher->name,
	    options->shard, options->shards, options->owner);
	publish_metrics_init(&shard_worker->metrics, publisher->name, options->shard);

	snprintf(name, sizeof name, "outbox-relay %s/%d", publisher->name, options->shard);
	link_init(&shard_worker->log, publisher->postgres->dsn, name,
	    statements_repeated(shard_worker->statements));
	link_init(&shard_worker->read, publisher->postgres->dsn, name, NULL);
	link_limit(&shard_worker->log, publisher->lease_ms / 3);
	link_limit(&shard_worker->read, publisher->lease_ms / 3);

	shard_worker->resume =
	    resume_create(publisher, options->shard, statements_identity(shard_worker->statements),
		shard_worker->stream, &shard_worker->metrics);
	shard_worker->sender = record_sender_create(publisher, options->shard, options->drain,
	    statements_identity(shard_worker->statements), shard_worker->stream,
	    &shard_worker->metrics, err);
	if (!shard_worker->sender) {
		shard_worker_free(shard_worker);
		return NULL;
	}

	shard_worker->seat = options->doorbell ? doorbell_join(options->doorbell,
						     shard_worker->wake_fd, publisher->poll_busy_ms)
					       : -1;
	topic_metadata_watch(options->metadata, shard_worker->metadata_fd);
	if (pthread_create(&shard_worker->thread, NULL, run_shard_worker, shard_worker) == 0)
		return shard_worker;
	err_set(err, ERR_FATAL, "publisher %s: no thread can be started", publisher->name);
	topic_metadata_unwatch(options->metadata, shard_worker->metadata_fd);
	leave_doorbell(shard_worker);
	shard_worker_free(shard_worker);
	return NULL;
}

void shard_worker_stop(struct shard_worker *shard_worker)
{
	uint64_t one = 1;
	atomic_store(&shard_worker->stop_asked, true);
	if (write(shard_worker->wake_fd, &one, sizeof one) < 0)
		log_debug("already_woken",
		    {"publisher", LOG_TEXT(shard_worker->options.publisher->name)});
}

void shard_worker_join(struct shard_worker *shard_worker)
{
	if (!shard_worker)
		return;
	pthread_join(shard_worker->thread, NULL);
	topic_metadata_unwatch(shard_worker->options.metadata, shard_worker->metadata_fd);
	shard_worker_free(shard_worker);
}

void shard_worker_retune(
    struct shard_worker *shard_worker, const struct publisher_settings *publisher)
{
	pthread_mutex_lock(&shard_worker->mutex);
	shard_worker->settings = stream_settings_of(publisher);
	shard_worker->settings_changed = true;
	pthread_mutex_unlock(&shard_worker->mutex);
}

struct shard_worker_status shard_worker_status(struct shard_worker *shard_worker)
{
	pthread_mutex_lock(&shard_worker->mutex);
	struct shard_worker_status status = shard_worker->status;
	pthread_mutex_unlock(&shard_worker->mutex);
	return status;
}

int shard_worker_event_fd(const struct shard_worker *shard_worker)
{
	return shard_worker->event_fd;
}
