/*
 * The loop around a stream: each turn moves on the two connections and the producer, asks the
 * stream what to do on whatever is idle, and waits until a file descriptor or the stream's clock
 * calls. Nothing in it waits for a server, so that the lease is renewed while Kafka is away, a page
 * is slow or the other connection is being made. What does block is short: a question about a topic
 * that has grown (delivery_knows), the end of a producer (producer_destroy), and the look-up of a
 * host by name (pg_start).
 */
#include "publisher.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "cleanup.h"
#include "clock.h"
#include "delivery.h"
#include "fault.h"
#include "link.h"
#include "logging.h"
#include "publish_metrics.h"
#include "resume.h"
#include "statements.h"

enum {
	ROWS_A_TURN = 512,
	TOPICS_MAX_AGE_MS = 30000,
	TOPICS_ASK_MS = 1000,
	UNREADY_ASK_MS = 5,
	TOPICS_A_TURN = 256,
	STATUS_MS = 100,
	LONGEST_WAIT_MS = 1000,
	PATIENCE_MS = 5,   /* with reports that nothing waits for */
	GRACE_PART = 4,    /* grace after a statement's limit: a quarter of it */
	RELEASE_MS = 2500, /* to end a producer that is given up and to write the last row */
};

struct publisher {
	struct publisher_options options;
	pthread_t thread;
	int event_fd, wake_fd, catalog_fd;
	atomic_bool stop_asked;

	/* of the thread */
	struct stream *stream;
	struct statements *statements;
	struct delivery *delivery;
	struct resume *resume;
	struct publish_metrics metrics;
	struct link log, read;
	enum stream_call log_call; /* under way on the log connection */
	int64_t log_call_at;       /* when it was sent */
	int64_t log_call_by;       /* without an answer by then it is cancelled */
	int64_t read_by;           /* deadline of the read connection's answer */
	int64_t read_at;
	bool reading, copying; /* under way on the read connection: bounds, or a page */
	bool first_row;        /* the next row is the page's first */
	struct stream_page page;
	int64_t page_rows, page_bytes, page_id; /* of its last row */
	int64_t topics_asked_at, unready_asked_at, status_at, stop_at;
	bool topics_told;  /* the catalog has news */
	int topics_to_ask; /* left in this round over the topics in use */
	int64_t lost_seen, refusals_seen;
	int stalls_seen;
	bool owned, refusal_logged, elsewhere_logged, careful_logged, drained;
	char missing_logged[256];
	char denied_logged[256];
	char holder[128];

	pthread_mutex_t mutex; /* guards what follows */
	struct publisher_status status;
	struct stream_settings settings;
	bool settings_changed;
};

static enum stream_policy policy_of(const void *context, const char *topic)
{
	static const enum stream_policy policies[] = {[REFUSAL_BLOCK] = STREAM_BLOCK,
	    [REFUSAL_PASS] = STREAM_PASS,
	    [REFUSAL_STOP] = STREAM_STOP};
	const struct config_slot *slot = context;
	return policies[config_topic_policy(slot->config, topic)];
}

static char *refused_topic(const void *context, const char *topic)
{
	return config_topic_refused(context, topic);
}

static struct stream_settings settings_of(const struct config_slot *slot)
{
	return (struct stream_settings){
	    .max_in_flight = config_in_flight(slot),
	    .memory = slot->memory,
	    .lease_ms = slot->lease_ms,
	    .poll_busy_ms = slot->poll_busy_ms,
	    .poll_idle_ms = slot->poll_idle_ms,
	    .ack_interval_ms = slot->ack_interval_ms,
	    .stall_after_ms = slot->stall_after_ms,
	    .topic_idle_ms = slot->topic_idle_ms,
	    .resumes = slot->resume == RESUME_TAIL,
	    .transactions = slot->delivery == DELIVERY_EXACTLY_ONCE,
	    .parking = {.retry_first_ms = slot->retry_first_ms,
		.retry_max_ms = slot->retry_max_ms,
		.max_attempts = slot->max_attempts,
		.policy = policy_of,
		.refused_topic = refused_topic,
		.context = slot},
	    .seed = (uint64_t)clock_random(),
	};
}

/* --- the log connection -------------------------------------------------------------------- */

static void log_problem(struct publisher *publisher, const char *event, const struct err *err)
{
	log_warn(event, {"slot", LOG_TEXT(publisher->options.slot->name)},
	    {"shard", LOG_INT(publisher->options.shard)}, {"error", LOG_TEXT(err->message)});
}

/* May this process take one more shard now? A take that may not begin is not asked for. */
static bool may_ask(struct publisher *publisher, const struct stream_status *status, int64_t now)
{
	return status->state != STREAM_STANDBY || spread_begin(publisher->options.spread, now);
}

static void end_take(struct publisher *publisher, int64_t now)
{
	struct stream_status status = stream_status(publisher->stream, now);
	spread_end(publisher->options.spread, now, status.state == STREAM_OWNER);
}

/*
 * The server ends a statement after the limit. The relay cancels statements that the server does
 * not end: a COMMIT that waits for a standby, and a statement that a pooler holds. This deadline
 * leaves time within the lease for the look-up and for a RENEW.
 */
static int64_t answer_due(const struct publisher *publisher, int64_t now)
{
	return now + publisher->log.limit_ms + publisher->log.limit_ms / GRACE_PART + 1;
}

static void send_log_call(struct publisher *publisher, int64_t now)
{
	struct stream_status status = stream_status(publisher->stream, now);
	struct err err;
	if (!may_ask(publisher, &status, now))
		return;
	struct stream_tick call = stream_log_call(publisher->stream, now);
	publisher->log_call = call.call;
	publisher->log_call_at = now;
	publisher->log_call_by = answer_due(publisher, now);
	if (call.call != STREAM_TAKE && status.state == STREAM_STANDBY)
		spread_end(publisher->options.spread, now, false);
	if (call.call == STREAM_NONE)
		return;
	fault_point("before_log_call");
	if (!statements_send_call(publisher->statements, &publisher->log, &call, &err)) {
		stream_log_failed(publisher->stream, now, true, false);
		if (call.call == STREAM_TAKE)
			end_take(publisher, now);
		publisher->log_call = STREAM_NONE;
		link_drop(&publisher->log, now, &err);
	}
	fault_point("after_log_call");
}

/* It had its whole time, and ended without success: cut by the server, or given up here. */
static bool is_late(const struct publisher *publisher, int64_t now)
{
	return now - publisher->log_call_at >= publisher->log.limit_ms;
}

static void log_call_failed(struct publisher *publisher, int64_t now, const struct err *err)
{
	if (err && !publisher->log.ending)
		link_failed(&publisher->log, now, err);
	bool lost =
	    !publisher->log.pg || publisher->log.ending || pg_state(publisher->log.pg) == PG_LOST;
	enum stream_call call = publisher->log_call;
	publisher->log_call = STREAM_NONE;
	bool fenced =
	    err && err->kind == ERR_FENCED; /* nothing is wrong: another owner was first */
	if (err && !fenced)
		log_problem(publisher, "log_call_failed", err);
	if (fenced && call == STREAM_TICK)
		stream_ticked(publisher->stream, now, STREAM_FENCED);
	else if (fenced && call == STREAM_RENEW)
		stream_renewed(publisher->stream, now, false);
	else
		stream_log_failed(publisher->stream, now, lost, is_late(publisher, now));
	if (call == STREAM_TAKE)
		end_take(publisher, now);
}

/*
 * What is under way on the read connection is of the history before, and its server may be the one
 * that was left: its answer may be wrong here, or never come.
 */
static void leave_reading(struct publisher *publisher, int64_t now)
{
	link_cancel(&publisher->read, now);
	statements_forget_bounds(publisher->statements);
	if (publisher->reading)
		stream_read_failed(publisher->stream, now);
	publisher->reading = publisher->copying = false;
}

static void take_answer(struct publisher *publisher, const struct pg_result *result, int64_t now)
{
	struct err err;
	bool done;
	enum stream_call call = publisher->log_call;
	fault_point(call == STREAM_TAKE ? "after_take" : "after_tick");
	uint64_t sequence = stream_next_sequence(publisher->stream);
	/* after a peek the tick needs its whole limit, and the two end with the limit of the call
	 */
	bool slow = now - publisher->log_call_at >= publisher->log.limit_ms / GRACE_PART;
	bool good = statements_answer(publisher->statements, &publisher->log, result,
	    publisher->stream, now, slow, publisher->holder, sizeof publisher->holder, &done, &err);
	if (!good)
		log_problem(publisher, "log_answer_unusable", &err);
	if (!done && good)
		return;
	publisher->log_call = STREAM_NONE;
	if (!good) {
		link_drop(&publisher->log, now, &err);
		stream_log_failed(publisher->stream, now, true, false);
	}
	if (call == STREAM_TAKE) {
		leave_reading(publisher, now);
		end_take(publisher, now);
	}
	const struct message *newest = stream_message(publisher->stream, sequence);
	if (newest)
		publish_metrics_read(&publisher->metrics, sequence, newest->due_us);
}

/* Gives up a call that is late; a later call looks up whether the server carried it out. */
static void check_deadline(struct publisher *publisher, int64_t now)
{
	struct err err;
	if (publisher->log_call == STREAM_NONE || now < publisher->log_call_by ||
	    !publisher->log.pg)
		return;
	err_set(&err, ERR_RETRY, "%s: no answer within a third of the lease; it is cancelled",
	    pg_place(publisher->log.pg));
	link_cancel(&publisher->log, now);
	log_call_failed(publisher, now, &err);
}

static void step_log(struct publisher *publisher, int64_t now)
{
	check_deadline(publisher, now);
	enum link_event event = link_step(&publisher->log, now);
	if (event == LINK_LOST && publisher->log_call != STREAM_NONE)
		log_call_failed(publisher, now, NULL);
	if (event == LINK_ANSWER) {
		struct err err;
		bool done;
		OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
		if (!pg_receive(publisher->log.pg, &done, &result, &err))
			log_call_failed(publisher, now, &err);
		else if (done)
			take_answer(publisher, result, now);
		else
			return;
		event = publisher->log.pg && pg_state(publisher->log.pg) == PG_IDLE ? LINK_READY
										    : LINK_NONE;
	}
	if (event == LINK_READY && publisher->log_call == STREAM_NONE)
		send_log_call(publisher, now);
}

/* --- the read connection ------------------------------------------------------------------- */

static void read_failed(struct publisher *publisher, int64_t now, const struct err *err)
{
	if (now - publisher->read_at >= publisher->read.limit_ms)
		statements_page_late(publisher->statements, publisher->copying);
	else
		statements_forget_bounds(publisher->statements);
	publisher->reading = publisher->copying = false;
	stream_read_failed(publisher->stream, now);
	log_problem(publisher, "page_failed", err);
	if (!publisher->read.ending)
		link_failed(&publisher->read, now, err);
}

static void check_read_deadline(struct publisher *publisher, int64_t now)
{
	struct err err;
	if (!publisher->reading || now < publisher->read_by || !publisher->read.pg)
		return;
	err_set(&err, ERR_RETRY, "%s: no page within a third of the lease; it is cancelled",
	    pg_place(publisher->read.pg));
	link_cancel(&publisher->read, now);
	read_failed(publisher, now, &err);
}

static void send_page(struct publisher *publisher, int64_t now)
{
	struct err err;
	publisher->page = stream_read_call(publisher->stream, now);
	if (!publisher->page.wanted)
		return;
	publisher->read_at = now;
	publisher->read_by = answer_due(publisher, now);
	if (!statements_send_page(publisher->statements, &publisher->read, &publisher->page, now,
		&publisher->copying, &err)) {
		read_failed(publisher, now, &err);
		link_drop(&publisher->read, now, &err);
		return;
	}
	publisher->reading = true;
	publisher->first_row = true;
	publisher->page_rows = publisher->page_bytes = 0;
}

static void take_bounds(struct publisher *publisher, int64_t now)
{
	struct err err;
	bool done;
	OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
	if (!pg_receive(publisher->read.pg, &done, &result, &err) ||
	    (done && !statements_bounds(publisher->statements, result, &err)))
		read_failed(publisher, now, &err);
	else if (done)
		publisher->reading = false;
}

static bool is_too_large(const struct publisher *publisher)
{
	return publisher->page_bytes >= publisher->page.bytes &&
	       publisher->page_rows < publisher->page.rows;
}

/*
 * *ret_cut: the page was too large in front of this row, which comes again with the next one. The
 * next page begins behind the last id, so rows that share it are not cut apart.
 */
static bool take_row(
    struct publisher *publisher, char *row, int length, bool *ret_cut, struct err *err)
{
	struct message message;
	enum copy_kind kind;
	if (!message_from_copy(row, length, publisher->first_row, &message, &kind, err))
		return false;
	publisher->first_row = false;
	if (kind == COPY_TRAILER)
		return true;
	if (is_too_large(publisher) && message.id != publisher->page_id) {
		message_release(&message);
		*ret_cut = true;
		return true;
	}
	publisher->page_id = message.id;
	publish_metrics_read(
	    &publisher->metrics, stream_next_sequence(publisher->stream), message.due_us);
	stream_row(publisher->stream, &message);
	publisher->page_rows++;
	publisher->page_bytes += length;
	return true;
}

/* cut: rows of it are missing. */
static void page_over(struct publisher *publisher, int64_t now, bool cut)
{
	bool full = cut || publisher->page_rows >= publisher->page.rows;
	int64_t upto_id;
	publisher->reading = publisher->copying = false;
	fault_point("after_page");
	bool last = statements_page_over(
	    publisher->statements, now, publisher->read.limit_ms, full, &upto_id);
	stream_page_end(publisher->stream, now, last, upto_id);
}

/*
 * Ends a page of unexpectedly large rows early: the received rows count, the next page begins
 * behind them. Cancels the rest of the page and closes the connection.
 */
static void cut_page(struct publisher *publisher, int64_t now)
{
	link_cancel(&publisher->read, now);
	page_over(publisher, now, true);
}

/* True: more rows may be there at once. */
static bool take_rows(struct publisher *publisher, int64_t now)
{
	struct err err;
	for (int i = 0; i < ROWS_A_TURN; i++) {
		enum pg_copy what;
		char *row;
		int length;
		if (!pg_copy_next(publisher->read.pg, &what, &row, &length, &err)) {
			read_failed(publisher, now, &err);
			return false;
		}
		if (what == PG_COPY_WAIT)
			return false;
		if (what == PG_COPY_END) {
			page_over(publisher, now, false);
			return true;
		}
		bool cut = false;
		if (!take_row(publisher, row, length, &cut, &err)) {
			link_cancel(&publisher->read, now);
			read_failed(publisher, now, &err);
			return false;
		}
		if (cut) {
			cut_page(publisher, now);
			return false;
		}
	}
	return true;
}

static bool step_read(struct publisher *publisher, int64_t now)
{
	bool more = false;
	if (!publisher->owned && !publisher->read.pg)
		return false;
	check_read_deadline(publisher, now);
	enum link_event event = link_step(&publisher->read, now);
	if (event == LINK_LOST)
		leave_reading(publisher, now);
	if (event == LINK_ANSWER && publisher->copying)
		more = take_rows(publisher, now);
	else if (event == LINK_ANSWER)
		take_bounds(publisher, now);
	bool idle = publisher->read.pg && !publisher->read.ending &&
		    publisher->read.stage == LINK_KNOWN && pg_state(publisher->read.pg) == PG_IDLE;
	if (idle && !publisher->reading)
		send_page(publisher, now);
	return more;
}

/* --- topics, status, ends --------------------------------------------------------------------- */

/* With safety = strict a topic stays closed until it was found safe. */
static bool is_safe(struct publisher *publisher, const char *topic)
{
	const struct publisher_options *options = &publisher->options;
	return !options->topic_checks ||
	       topic_checks_allow(options->topic_checks, topic, options->slot->safety);
}

/* A producer refuses records for a partition that it has not heard of yet. */
static bool is_known(
    struct publisher *publisher, const char *topic, int32_t logged, int32_t partitions, int64_t now)
{
	return logged == 0 || partitions <= logged ||
	       delivery_knows(publisher->delivery, topic, partitions, now);
}

static void ask_topic(struct publisher *publisher, const char *name, int32_t logged, int64_t now)
{
	struct catalog_topic topic =
	    catalog_look(publisher->options.catalog, name, TOPICS_MAX_AGE_MS);
	if (topic.state == TOPIC_MISSING) {
		stream_topic(publisher->stream, name, 0);
		stream_topic_answered(publisher->stream, name, topic.answered_ms);
	} else if (topic.state == TOPIC_THERE && is_safe(publisher, name) &&
		   is_known(publisher, name, logged, topic.partitions, now)) {
		stream_topic(publisher->stream, name, topic.partitions);
	}
}

/* So many of them as a turn of the loop may ask for; returns how many. */
static int ask_some(struct publisher *publisher, bool unready, int count, int64_t now)
{
	const char *name;
	bool ready;
	int32_t logged;
	int asked = 0;
	while (asked < count && asked < TOPICS_A_TURN &&
	       (name = stream_next_topic(publisher->stream, unready, &ready, &logged))) {
		ask_topic(publisher, name, logged, now);
		asked++;
	}
	return asked;
}

static void close_topics(struct publisher *publisher)
{
	char *name;
	while (stream_closed_topic(publisher->stream, &name)) {
		delivery_close_topic(publisher->delivery, name);
		free(name);
	}
}

/* True: some are yet to be asked for. */
static bool ask_topics(struct publisher *publisher, int64_t now)
{
	close_topics(publisher);
	if (publisher->topics_told || now - publisher->topics_asked_at >= TOPICS_ASK_MS) {
		publisher->topics_asked_at = now;
		publisher->topics_told = false;
		publisher->topics_to_ask = stream_topics(publisher->stream, false);
	}
	if (now - publisher->unready_asked_at >= UNREADY_ASK_MS) {
		publisher->unready_asked_at = now;
		ask_some(publisher, true, stream_topics(publisher->stream, true), now);
	}
	if (publisher->topics_to_ask)
		publisher->topics_to_ask -=
		    ask_some(publisher, false, publisher->topics_to_ask, now);
	if (stream_topics(publisher->stream, false) == 0)
		publisher->topics_to_ask = 0;
	return publisher->topics_to_ask > 0;
}

/* A line for those since the last look, with the last of them: they stand in outbox.parked, or will
 * with the next row of the log. */
static void log_parked(struct publisher *publisher, const struct stream_status *status)
{
	int64_t count = status->refusals - publisher->refusals_seen;
	if (count == 0)
		return;
	publisher->refusals_seen = status->refusals;
	log_error("message_parked", {"slot", LOG_TEXT(publisher->options.slot->name)},
	    {"shard", LOG_INT(publisher->options.shard)},
	    {"topic", LOG_TEXT(status->refused_topic)}, {"id", LOG_INT(status->refused_id)},
	    {"error", LOG_TEXT(status->refused_error)}, {"refusals", LOG_INT(count)},
	    {"consequence", LOG_TEXT("publish refused, parked; later messages of its key wait "
				     "behind it (see outbox-relay parked)")});
}

static void log_deaths(struct publisher *publisher, const struct stream_status *status)
{
	if ((status->deaths > 0) == publisher->careful_logged)
		return;
	publisher->careful_logged = status->deaths > 0;
	if (status->deaths == 0)
		return;
	log_warn("one_at_a_time", {"slot", LOG_TEXT(publisher->options.slot->name)},
	    {"shard", LOG_INT(publisher->options.shard)}, {"deaths", LOG_INT(status->deaths)},
	    {"consequence", LOG_TEXT("its owners died without progress: messages go one by one "
				     "until it is known which of them kills the relay")});
}

static void log_stalls(struct publisher *publisher, const struct stream_status *status)
{
	if (status->stalls == publisher->stalls_seen)
		return;
	bool more = status->stalls > publisher->stalls_seen;
	publisher->stalls_seen = status->stalls;
	log_warn(more ? "partition_stalled" : "partition_recovered",
	    {"slot", LOG_TEXT(publisher->options.slot->name)},
	    {"shard", LOG_INT(publisher->options.shard)}, {"stalled", LOG_INT(status->stalls)},
	    {"consequence",
		LOG_TEXT(more ? "it took nothing for stall_after, or answers with errors: its "
				"records are parked until it takes some (see outbox-relay "
				"parked list state=stalled)"
			      : "its parked records follow in order")});
}

static void log_refusal(struct publisher *publisher, const struct stream_status *status)
{
	if (!status->refused || publisher->refusal_logged)
		return;
	publisher->refusal_logged = true;
	log_error("slot_stopped", {"slot", LOG_TEXT(publisher->options.slot->name)},
	    {"shard", LOG_INT(publisher->options.shard)},
	    {"topic", LOG_TEXT(status->refused_topic)}, {"id", LOG_INT(status->refused_id)},
	    {"error", LOG_TEXT(status->refused_error)},
	    {"consequence", LOG_TEXT("Kafka refuses this row for good; nothing of its key passes "
				     "it; mend the topic or the row, then restart")});
}

static void note_elsewhere(struct publisher *publisher)
{
	bool elsewhere = statements_elsewhere(publisher->statements);
	metric_set(publisher->metrics.elsewhere, elsewhere);
	if (elsewhere && !publisher->elsewhere_logged)
		log_error("slot_elsewhere", {"slot", LOG_TEXT(publisher->options.slot->name)},
		    {"shard", LOG_INT(publisher->options.shard)},
		    {"consequence",
			LOG_TEXT("its rows were carried here from another database cluster (a "
				 "dump, logical replication), and their transaction ids mean "
				 "nothing here; nothing is published")},
		    {"cure", LOG_TEXT("`outbox-relay slot rebase --all --reason TEXT`")});
	publisher->elsewhere_logged = elsewhere;
}

/* Rows also wait while Kafka has not said whether their topic is there. */
static const char *missing_topic(struct publisher *publisher, const char *waited_for)
{
	if (!waited_for)
		return NULL;
	struct catalog_topic topic =
	    catalog_look(publisher->options.catalog, waited_for, TOPICS_MAX_AGE_MS);
	return topic.state == TOPIC_MISSING ? waited_for : NULL;
}

static void log_missing(struct publisher *publisher, const char *topic)
{
	if (text_equal(topic ? topic : "", publisher->missing_logged))
		return;
	text_copy(publisher->missing_logged, sizeof publisher->missing_logged, topic);
	if (topic)
		log_warn("topic_missing", {"slot", LOG_TEXT(publisher->options.slot->name)},
		    {"shard", LOG_INT(publisher->options.shard)}, {"topic", LOG_TEXT(topic)},
		    {"consequence", LOG_TEXT("its rows wait until the topic exists")});
}

static void log_denied(struct publisher *publisher, const struct stream_status *status)
{
	const char *topic = status->denied_topic;
	if (text_equal(topic ? topic : "", publisher->denied_logged))
		return;
	text_copy(publisher->denied_logged, sizeof publisher->denied_logged, topic);
	if (topic)
		log_warn("topic_denied", {"slot", LOG_TEXT(publisher->options.slot->name)},
		    {"shard", LOG_INT(publisher->options.shard)}, {"topic", LOG_TEXT(topic)},
		    {"error", LOG_TEXT(status->denied_error)},
		    {"consequence",
			LOG_TEXT("its rows wait, and are parked from the fourth try on; it is "
				 "tried again after 1, 2, 4 … 60 seconds, other topics go on")},
		    {"cure", LOG_TEXT("without permission: allow the relay WRITE on the topic; "
				      "else the brokers' logs tell why they refuse")});
}

static void log_ownership(struct publisher *publisher, const struct stream_status *status)
{
	bool owns = status->state == STREAM_OWNER || status->state == STREAM_UNSURE;
	if (owns == publisher->owned)
		return;
	publisher->owned = owns;
	if (!owns) {
		spread_lost(publisher->options.spread);
		publish_metrics_forget(&publisher->metrics);
		resume_forget(publisher->resume);
		delivery_forget(publisher->delivery);
	}
	log_info(owns ? "shard_taken" : "shard_left",
	    {"slot", LOG_TEXT(publisher->options.slot->name)},
	    {"shard", LOG_INT(publisher->options.shard)},
	    {"state", LOG_TEXT(stream_state_names[status->state])}, {"n", LOG_INT(status->n)});
}

static enum publisher_end end_of(
    const struct publisher *publisher, const struct stream_status *status)
{
	switch (status->state) {
	case STREAM_GONE:
		return PUBLISHER_GONE;
	case STREAM_RELEASED:
		if (publisher->drained)
			return PUBLISHER_DRAINED;
		return publisher->options.drain &&
			       (status->refused || statements_elsewhere(publisher->statements))
			   ? PUBLISHER_REFUSED
			   : PUBLISHER_STOPPED;
	default:
		return PUBLISHER_RUNNING;
	}
}

static void write_status(struct publisher *publisher, const struct stream_status *status,
    int64_t now, enum publisher_end end)
{
	struct publisher_status *out = &publisher->status;
	pthread_mutex_lock(&publisher->mutex);
	out->end = end;
	out->state = status->state;
	out->loop_ms = now;
	out->lease_over = status->lease_over;
	out->full = status->full;
	out->elsewhere = statements_elsewhere(publisher->statements);
	out->refused = status->refused;
	out->refused_id = status->refused_id;
	text_copy(out->refused_topic, sizeof out->refused_topic, status->refused_topic);
	text_copy(out->refused_error, sizeof out->refused_error, status->refused_error);
	text_copy(out->missing_topic, sizeof out->missing_topic,
	    status->missing_topic ? status->missing_topic : status->denied_topic);
	text_copy(out->postgres_error, sizeof out->postgres_error,
	    publisher->log.error[0] ? publisher->log.error : publisher->read.error);
	text_copy(out->kafka_error, sizeof out->kafka_error, delivery_error(publisher->delivery));
	text_copy(out->holder, sizeof out->holder, publisher->holder);
	pthread_mutex_unlock(&publisher->mutex);
}

/* What publisher_retune left for the thread. */
static void take_settings(struct publisher *publisher)
{
	pthread_mutex_lock(&publisher->mutex);
	if (publisher->settings_changed)
		stream_retune(publisher->stream, &publisher->settings);
	publisher->settings_changed = false;
	pthread_mutex_unlock(&publisher->mutex);
}

static void note_links(struct publisher *publisher)
{
	int64_t lost = publisher->log.lost_count + publisher->read.lost_count;
	if (lost == publisher->lost_seen)
		return;
	metric_add(publisher->metrics.postgres_reconnects, (double)(lost - publisher->lost_seen));
	publisher->lost_seen = lost;
	const char *why = publisher->log.error[0] ? publisher->log.error : publisher->read.error;
	log_warn("postgres_lost", {"slot", LOG_TEXT(publisher->options.slot->name)},
	    {"shard", LOG_INT(publisher->options.shard)}, {"error", LOG_TEXT(why)});
}

/* Returns what the loop ends with; PUBLISHER_RUNNING: it goes on. */
static enum publisher_end note_status(struct publisher *publisher, int64_t now)
{
	struct stream_status status = stream_status(publisher->stream, now);
	enum publisher_end end = end_of(publisher, &status);
	log_ownership(publisher, &status);
	log_deaths(publisher, &status);
	if (now < publisher->status_at && end == PUBLISHER_RUNNING)
		return end;
	publisher->status_at = now + STATUS_MS;
	status.missing_topic = missing_topic(publisher, status.missing_topic);
	log_parked(publisher, &status);
	log_stalls(publisher, &status);
	log_refusal(publisher, &status);
	note_elsewhere(publisher);
	log_missing(publisher, status.missing_topic);
	log_denied(publisher, &status);
	note_links(publisher);
	publish_metrics_note(&publisher->metrics, &status);
	delivery_note(publisher->delivery);
	take_settings(publisher);
	write_status(publisher, &status, now, end);
	return end;
}

static void begin_stop(struct publisher *publisher, int64_t now)
{
	fault_point("before_release");
	stream_stop(publisher->stream);
	if (!publisher->stop_at)
		publisher->stop_at = now + publisher->options.slot->lease_ms + RELEASE_MS;
}

static void check_stop(struct publisher *publisher, int64_t now)
{
	struct stream_status status = stream_status(publisher->stream, now);
	bool in_vain = publisher->options.drain &&
		       (status.refused || statements_elsewhere(publisher->statements));
	if (atomic_load(&publisher->stop_asked) || in_vain)
		begin_stop(publisher, now);
	if (publisher->options.drain && status.caught_up && !publisher->drained) {
		publisher->drained = true;
		begin_stop(publisher, now);
	}
}

/* --- the loop -------------------------------------------------------------------------------- */

static int64_t stream_clock(struct publisher *publisher, int64_t now)
{
	const struct link *log = &publisher->log;
	if (publisher->log_call != STREAM_NONE || !log->pg || pg_state(log->pg) != PG_IDLE) {
		int64_t wait = stream_wait_offline(publisher->stream, now);
		bool asked = publisher->log_call != STREAM_NONE;
		return asked && publisher->log_call_by < wait ? publisher->log_call_by : wait;
	}
	int64_t wait = stream_wait(publisher->stream, now);
	if (stream_status(publisher->stream, now).state != STREAM_STANDBY)
		return wait;
	int64_t may_take = spread_wait(publisher->options.spread, now);
	return wait < may_take ? may_take : wait;
}

/* An eventfd that poll says has something to say. */
static bool took(const struct pollfd *fd)
{
	eventfd_t count;
	return fd->revents && eventfd_read(fd->fd, &count) == 0;
}

static struct pollfd wanted(const struct link *link)
{
	return link->pg ? (struct pollfd){.fd = pg_fd(link->pg), .events = pg_events(link->pg)}
			: (struct pollfd){.fd = -1};
}

static void wait_for_events(struct publisher *publisher, int64_t now)
{
	struct pollfd fds[6] = {0};
	int count = 0;
	bool patient =
	    stream_is_patient(publisher->stream) && delivery_wait(publisher->delivery) == INT64_MAX;
	int64_t wait = now + (patient ? PATIENCE_MS : LONGEST_WAIT_MS);
	const int64_t clocks[] = {stream_clock(publisher, now), link_wait(&publisher->log),
	    publisher->reading ? publisher->read_by : INT64_MAX,
	    publisher->owned ? link_wait(&publisher->read) : INT64_MAX,
	    delivery_wait(publisher->delivery), resume_wait(publisher->resume)};
	for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
		wait = clocks[i] < wait ? clocks[i] : wait;
	struct link *links[] = {&publisher->log, &publisher->read};
	for (int i = 0; i < 2; i++)
		fds[count++] = wanted(links[i]);
	struct pollfd *told = &fds[count++], *woken = &fds[count++];
	*told = (struct pollfd){.fd = publisher->catalog_fd, .events = POLLIN};
	*woken = (struct pollfd){.fd = publisher->wake_fd, .events = POLLIN};
	fds[count++] = (struct pollfd){.fd = resume_fd(publisher->resume), .events = POLLIN};
	if (!patient)
		fds[count++] =
		    (struct pollfd){.fd = delivery_fd(publisher->delivery), .events = POLLIN};
	bool polled = wait > now && poll(fds, (nfds_t)count, (int)(wait - now)) >= 0;
	for (int i = 0; i < 2; i++)
		links[i]->quiet = polled && !fds[i].revents;
	publisher->topics_told |= took(told);
	took(woken);
}

static void *run(void *context)
{
	struct publisher *publisher = context;
	enum publisher_end end = PUBLISHER_RUNNING;
	while (end == PUBLISHER_RUNNING) {
		int64_t now = clock_ms();
		check_stop(publisher, now);
		step_log(publisher, now);
		bool more = step_read(publisher, now);
		more |= resume_step(publisher->resume, now);
		more |= delivery_step(publisher->delivery, clock_ms());
		more |= ask_topics(publisher, now);
		end = note_status(publisher, now);
		if (publisher->stop_at && now >= publisher->stop_at && end == PUBLISHER_RUNNING)
			end = PUBLISHER_ABANDONED;
		if (!more && end == PUBLISHER_RUNNING)
			wait_for_events(publisher, clock_ms());
	}
	fault_point("after_release");
	/* not in join, which may come long after: what it holds must not go out any more */
	delivery_destroy(publisher->delivery);
	publisher->delivery = NULL;
	pthread_mutex_lock(&publisher->mutex);
	publisher->status.end = end;
	pthread_mutex_unlock(&publisher->mutex);
	if (publisher->log_call == STREAM_TAKE)
		end_take(publisher, clock_ms());
	if (publisher->owned)
		spread_lost(publisher->options.spread);
	uint64_t one = 1;
	if (write(publisher->event_fd, &one, sizeof one) < 0)
		log_error("event_not_written", {"slot", LOG_TEXT(publisher->options.slot->name)});
	return NULL;
}

static void publisher_free(struct publisher *publisher)
{
	delivery_destroy(publisher->delivery);
	resume_destroy(publisher->resume);
	stream_destroy(publisher->stream);
	statements_destroy(publisher->statements);
	link_finish(&publisher->log);
	link_finish(&publisher->read);
	close(publisher->event_fd);
	close(publisher->wake_fd);
	close(publisher->catalog_fd);
	pthread_mutex_destroy(&publisher->mutex);
	free(publisher);
}

struct publisher *publisher_start(const struct publisher_options *options, struct err *err)
{
	const struct config_slot *slot = options->slot;
	struct publisher *publisher = xcalloc(1, sizeof *publisher);
	char name[96];
	publisher->options = *options;
	publisher->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	publisher->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	publisher->catalog_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	pthread_mutex_init(&publisher->mutex, NULL);
	publisher->status.slot = slot->name;
	publisher->status.shard = options->shard;
	publisher->status.loop_ms = clock_ms();
	struct stream_settings settings = settings_of(slot);
	settings.turn = options->turn;
	publisher->stream = stream_create(&settings);
	publisher->statements = statements_create(
	    slot->postgres->schema, slot->name, options->shard, options->shards, options->owner);
	publish_metrics_init(&publisher->metrics, slot->name, options->shard);
	snprintf(name, sizeof name, "outbox-relay %s/%d", slot->name, options->shard);
	link_init(
	    &publisher->log, slot->postgres->dsn, name, statements_repeated(publisher->statements));
	link_init(&publisher->read, slot->postgres->dsn, name, NULL);
	link_limit(&publisher->log, slot->lease_ms / 3);
	link_limit(&publisher->read, slot->lease_ms / 3);
	publisher->resume = resume_create(slot, options->shard,
	    statements_identity(publisher->statements), publisher->stream, &publisher->metrics);
	publisher->delivery =
	    delivery_create(slot, options->shard, statements_identity(publisher->statements),
		publisher->stream, &publisher->metrics, err);
	if (!publisher->delivery) {
		publisher_free(publisher);
		return NULL;
	}
	catalog_watch(options->catalog, publisher->catalog_fd);
	if (pthread_create(&publisher->thread, NULL, run, publisher) == 0)
		return publisher;
	err_set(err, ERR_FATAL, "slot %s: no thread can be started", slot->name);
	catalog_unwatch(options->catalog, publisher->catalog_fd);
	publisher_free(publisher);
	return NULL;
}

void publisher_stop(struct publisher *publisher)
{
	uint64_t one = 1;
	atomic_store(&publisher->stop_asked, true);
	if (write(publisher->wake_fd, &one, sizeof one) < 0)
		log_debug("already_woken", {"slot", LOG_TEXT(publisher->options.slot->name)});
}

void publisher_join(struct publisher *publisher)
{
	if (!publisher)
		return;
	pthread_join(publisher->thread, NULL);
	catalog_unwatch(publisher->options.catalog, publisher->catalog_fd);
	publisher_free(publisher);
}

void publisher_retune(struct publisher *publisher, const struct config_slot *slot)
{
	pthread_mutex_lock(&publisher->mutex);
	publisher->settings = settings_of(slot);
	publisher->settings_changed = true;
	pthread_mutex_unlock(&publisher->mutex);
}

struct publisher_status publisher_status(struct publisher *publisher)
{
	pthread_mutex_lock(&publisher->mutex);
	struct publisher_status status = publisher->status;
	pthread_mutex_unlock(&publisher->mutex);
	return status;
}

int publisher_event_fd(const struct publisher *publisher)
{
	return publisher->event_fd;
}
