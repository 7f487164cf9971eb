/*
 * Reads partitions to their end for a shard, by one client of librdkafka that is created on demand.
 * The comment below explains how an end is found; begin at tail_next, which takes events, and
 * tail_ask, which starts a question.
 */
#include "tail.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <uthash.h>

#include "backoff.h"
#include "client_files.h"
#include "clock.h"
#include "consumer_private.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "logging.h"
#include "text.h"

/*
 * How a partition is read to its end.
 *
 * The end must be that of a moment after the question, and everything acknowledged before must lie
 * below it. A Fetch that finds no more records does not show that: a newly elected leader may
 * answer with a high watermark below the one that its predecessor acknowledged. ListOffsets does
 * show it: such a leader refuses it until its high watermark has caught up (KIP-207). librdkafka
 * sends one, without blocking, for a partition that is started at OFFSET_END, and then reports the
 * answer as the offset of the EOF (or of a record) there. So the end is requested first, and then
 * the records before it are read. The fetch at the end also shows the partition's first offset and
 * its high watermark; with read_committed the end is the last stable offset, and is requested again
 * until it has reached the high watermark of the first answer.
 *
 * librdkafka delays a ListOffsets by half a second if it does not know the leader yet, while it
 * fetches as soon as it does. So at first the reader fetches far beyond any end, and the refusal
 * shows that the leader is known: half a second is saved for one round trip.
 *
 * Each change is a stop and a start. A stop waits for librdkafka's main thread, which waits for
 * nobody (10 microseconds); librdkafka drops the records that were queued before. After any failure
 * the partition is stopped and begins again from the position reached, so that nothing depends on
 * the state in which librdkafka left it.
 */
enum {
	PATIENCE_MS = 5000,     /* silence of a partition that is worth telling */
	STABLE_MS = 20,         /* transactions end within so much, mostly */
	BUNCH = 200,            /* messages without an event in one call */
	READY_MESSAGES = 10000, /* librdkafka fetches no more while so many are ready, */
	READY_BYTES = 2 << 20,  /* or so much */
	AGAIN_MS = 50,          /* keep_tail_fetching */
	LOOK_MS = 1000,         /* so often librdkafka looks by itself */
	MOST_ANSWERED = 1000,   /* partitions in a client's memory without a question */
};

static const int64_t beyond_any_end = INT64_MAX / 2;

enum state { QUIET, KNOCKING, ASKING, READING, WAITING };

#define TO(state) (1U << (state))
static const struct {
	const char *name;
	unsigned next;
	const char *comment;
} states[] = {
    [QUIET] = {"quiet", TO(KNOCKING) | TO(ASKING), "no query is running"},
    [KNOCKING] = {"knocking", TO(QUIET) | TO(KNOCKING) | TO(ASKING) | TO(WAITING),
	"whether the leader is there"},
    [ASKING] = {"asking", TO(QUIET) | TO(KNOCKING) | TO(ASKING) | TO(READING) | TO(WAITING),
	"where the end is"},
    [READING] = {"reading", TO(QUIET) | TO(KNOCKING) | TO(ASKING) | TO(READING) | TO(WAITING),
	"from the position to that end"},
    [WAITING] = {"waiting", TO(QUIET) | TO(KNOCKING) | TO(ASKING),
	"something failed: begins again later"},
};

struct topic;

struct question {
	struct topic *topic;
	int32_t partition;
	enum state state;
	bool met;            /* its leader has answered since something failed */
	int64_t position;    /* the next offset to be read; or TAIL_FROM_END */
	int64_t asked;       /* the position at the time of the question */
	int64_t least;       /* an end before it says that the topic was made anew */
	uint64_t number;     /* the caller's */
	int64_t begin;       /* the first offset there was to read */
	int64_t end;         /* once it is known */
	int64_t stable;      /* read_committed: the end must come so far; 0: not known yet */
	int64_t unstable_at; /* waits for it since, or since the last event about it; 0: no */
	int64_t due;         /* WAITING: begins again; else: reports silence; 0: not set yet */
	struct backoff backoff;
};

/* Lives as long as the client that it was made for, unless a question is under way. */
struct topic {
	rd_kafka_topic_t *handle; /* of the present client; its opaque is this struct */
	struct question **questions;
	int32_t count;
	UT_hash_handle hh;
	char name[];
};

struct tail {
	const struct kafka_settings *kafka;
	const char *isolation;
	int64_t idle_ms;
	rd_kafka_t *handle;      /* NULL: no client */
	rd_kafka_queue_t *queue; /* events of all partitions, and the client's own errors */
	int wake_fd;             /* written by librdkafka; -1: never asked anything */
	struct topic *topics;
	rd_kafka_event_t *shown; /* the last event points into it; NULL: none */
	int asked;               /* questions that are not quiet */
	int partitions;          /* with a question, quiet or not: the client has memory for each */
	int64_t due_at;          /* not after any question's due */
	int64_t idle_at;         /* ends the client; 0: not idle, or not noticed yet */
	int64_t run, run_bytes;  /* taken since nothing was ready */
	int64_t again_at;        /* keep_tail_fetching; INT64_MAX: not needed */
	int64_t again_ms;
	uint64_t seed;
};

struct tail *tail_create(const struct kafka_settings *kafka, const char *isolation, int64_t idle_ms)
{
	struct tail *tail = xcalloc(1, sizeof *tail);

	tail->kafka = kafka;
	tail->isolation = isolation;
	tail->idle_ms = idle_ms;
	tail->wake_fd = -1;
	tail->again_at = INT64_MAX;
	tail->again_ms = AGAIN_MS;
	tail->seed = (uint64_t)clock_random();
	return tail;
}

/*
 * Ends are asked for, so that an empty answer must come soon; a leader that is stuck is given up
 * before anybody would wait for a minute.
 */
static const char *const defaults[] = {"fetch.wait.max.ms", "2", "fetch.error.backoff.ms", "10",
    "fetch.message.max.bytes", "262144", "fetch.max.bytes", "1048576",
    "topic.metadata.propagation.max.ms", "2000", "socket.timeout.ms", "10000", NULL};

/*
 * A section may not set these: keep_tail_fetching depends on them. Ready records are bounded in
 * number as well, since a small record takes half a kilobyte here.
 */
static bool set_bounds(rd_kafka_conf_t *conf, struct err *err)
{
	return kafka_conf_bound_ready(conf, READY_MESSAGES, READY_BYTES, err) &&
	       /* From leaders only: a near follower may lag behind the acknowledged records. */
	       kafka_conf_set(conf, "client.rack", "", err);
}

static rd_kafka_conf_t *make_tail_conf(const struct tail *tail, struct err *err)
{
	rd_kafka_conf_t *conf =
	    kafka_conf_reader(tail->kafka, tail->isolation, "error", defaults, err);

	if (!conf)
		return NULL;
	rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_ERROR);
	if (set_bounds(conf, err))
		return conf;
	rd_kafka_conf_destroy(conf);
	return NULL;
}

static void forward_errors(const struct tail *tail, rd_kafka_queue_t *to)
{
	rd_kafka_queue_t *errors = rd_kafka_queue_get_main(tail->handle);

	rd_kafka_queue_forward(errors, to);
	rd_kafka_queue_destroy(errors);
}

static bool open_tail_client(struct tail *tail, struct err *err)
{
	static const uint64_t one = 1;

	if (tail->handle)
		return true;
	tail->handle =
	    kafka_client_open(RD_KAFKA_CONSUMER, make_tail_conf(tail, err), tail->kafka, err);
	if (!tail->handle)
		return false;
	tail->queue = rd_kafka_queue_new(tail->handle);
	/* One queue for partitions and client errors, so that one eventfd covers both. */
	forward_errors(tail, tail->queue);
	rd_kafka_queue_io_event_enable(tail->queue, tail->wake_fd, &one, sizeof one);
	return true;
}

static bool open_fd(struct tail *tail, struct err *err)
{
	if (tail->wake_fd < 0)
		tail->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return tail->wake_fd >= 0 ||
	       err_set(err, ERR_RETRY, "no eventfd for a Kafka reader: %s", strerror(errno));
}

static void drop_shown(struct tail *tail)
{
	rd_kafka_event_destroy(tail->shown);
	tail->shown = NULL;
}

/* Frees quiet questions. True: another one is left. */
static bool keeps_questions(struct tail *tail, struct topic *topic)
{
	bool keeps = false;

	for (int32_t i = 0; i < topic->count; i++) {
		if (!topic->questions[i])
			continue;
		if (topic->questions[i]->state != QUIET) {
			keeps = true;
			continue;
		}
		free(topic->questions[i]);
		topic->questions[i] = NULL;
		tail->partitions--;
	}
	return keeps;
}

/* Topics stay, without a handle, of which a question is under way. */
static void leave_client(struct tail *tail)
{
	struct topic *topic, *next;

	HASH_ITER(hh, tail->topics, topic, next)
	{
		rd_kafka_topic_destroy(topic->handle);
		topic->handle = NULL;
		if (keeps_questions(tail, topic))
			continue;
		HASH_DEL(tail->topics, topic);
		free(topic->questions);
		free(topic);
	}
}

/* Needs all partitions stopped. Closing may go on in the background: nothing writes to the fd. */
static bool close_tail_client(struct tail *tail, int wait_ms)
{
	rd_kafka_t *handle = tail->handle;

	drop_shown(tail);
	if (!handle)
		return true;
	leave_client(tail);
	rd_kafka_queue_io_event_enable(tail->queue, -1, NULL, 0);
	forward_errors(tail, NULL);
	rd_kafka_queue_destroy(tail->queue);
	tail->handle = NULL;
	return kafka_client_close(handle, wait_ms);
}

void tail_destroy(struct tail *tail, int wait_ms)
{
	if (!tail)
		return;
	tail_forget(tail);
	if (!close_tail_client(tail, wait_ms))
		log_info("kafka_close_slow", {"waited_ms", LOG_INT(wait_ms)});
	if (tail->wake_fd >= 0)
		close(tail->wake_fd);
	free(tail);
}

static bool is_started(const struct question *question)
{
	return question->state != QUIET && question->state != WAITING;
}

static void move_question(struct tail *tail, struct question *question, enum state next)
{
	assert(states[question->state].next & TO(next));
	tail->asked += (next != QUIET) - (question->state != QUIET);
	question->state = next;
}

static void stop_question(struct tail *tail, struct question *question, enum state next)
{
	if (is_started(question))
		rd_kafka_consume_stop(question->topic->handle, question->partition);
	move_question(tail, question, next);
}

static void start_question(
    struct tail *tail, struct question *question, enum state next, int64_t offset)
{
	stop_question(tail, question, next);
	/* Fails on a negative partition or a foreign offset only. */
	if (rd_kafka_consume_start_queue(
		question->topic->handle, question->partition, offset, tail->queue) != 0)
		assert(!"a partition that can be started");
}

static void begin_question(struct tail *tail, struct question *question)
{
	question->due = 0;
	question->end = INT64_MAX;
	tail->due_at = 0;
	if (question->met)
		start_question(tail, question, ASKING, RD_KAFKA_OFFSET_END);
	else
		start_question(tail, question, KNOCKING, beyond_any_end);
}

static bool open_tail_topic(struct tail *tail, struct topic *topic, struct err *err)
{
	rd_kafka_topic_conf_t *conf = rd_kafka_default_topic_conf_dup(tail->handle);

	rd_kafka_topic_conf_set_opaque(conf, topic);
	topic->handle = rd_kafka_topic_new(tail->handle, topic->name, conf);
	return topic->handle || err_set(err, ERR_REJECT, "topic %.249s: %s", topic->name,
				    rd_kafka_err2str(rd_kafka_last_error()));
}

/* The questions under way begin again, from the positions reached. */
static void stop_for_now(struct tail *tail)
{
	for (struct topic *topic = tail->topics; topic; topic = topic->hh.next)
		for (int32_t i = 0; i < topic->count; i++) {
			struct question *question = topic->questions[i];

			if (!question || question->state == QUIET)
				continue;
			/* The partition of a waiting question is stopped already. */
			if (question->state != WAITING)
				stop_question(tail, question, WAITING);
			/* The next client does not know the leaders yet. */
			question->met = false;
			question->due = 0;
		}
	tail->due_at = 0;
}

/*
 * librdkafka keeps the memory of each topic and partition that it was asked for until the client
 * ends. So a new client replaces one that has many without a question. Questions under way
 * go on with the new client. Without a new client the old one stays until the next question.
 */
static void renew_client(struct tail *tail)
{
	struct tail former = *tail;
	rd_kafka_t *handle;
	rd_kafka_queue_t *queue;
	struct err err;

	/* The new client is opened first: should that fail, the old one is still whole. */
	tail->handle = NULL;
	if (!open_tail_client(tail, &err)) {
		tail->handle = former.handle;
		return;
	}
	handle = tail->handle;
	queue = tail->queue;
	tail->handle = former.handle;
	tail->queue = former.queue;
	stop_for_now(tail);
	close_tail_client(tail, 0);
	tail->handle = handle;
	tail->queue = queue;
	for (struct topic *topic = tail->topics; topic; topic = topic->hh.next)
		if (!open_tail_topic(tail, topic, &err))
			assert(!"a topic that could be opened before");
}

static struct topic *find_tail_topic(struct tail *tail, const char *name, struct err *err)
{
	struct topic *topic;
	size_t length = strlen(name);

	HASH_FIND_STR(tail->topics, name, topic);
	if (topic)
		return topic;
	topic = xcalloc(1, sizeof *topic + length + 1);
	memcpy(topic->name, name, length);
	if (!open_tail_topic(tail, topic, err)) {
		free(topic);
		return NULL;
	}
	HASH_ADD_STR(tail->topics, name, topic);
	return topic;
}

static struct question *find_question(struct tail *tail, struct topic *topic, int32_t partition)
{
	struct question *question;

	if (partition >= topic->count) {
		size_t count = (size_t)partition + 1;

		topic->questions = xrealloc(topic->questions, count * sizeof(struct question *));
		while (topic->count <= partition)
			topic->questions[topic->count++] = NULL;
	}
	if (topic->questions[partition])
		return topic->questions[partition];
	question = xcalloc(1, sizeof *question);
	*question = (struct question){.topic = topic,
	    .partition = partition,
	    .backoff = {.first_ms = 100, .cap_ms = 5000, .jitter = 0.2, .seed = tail->seed++}};
	topic->questions[partition] = question;
	tail->partitions++;
	return question;
}

bool tail_ask(struct tail *tail, const struct tail_question *asked, struct err *err)
{
	struct question *question;
	struct topic *topic;

	/* KNOCKING fetches at beyond_any_end, where no record may be. */
	if (asked->partition < 0 || asked->offset < TAIL_FROM_END ||
	    asked->offset >= beyond_any_end)
		return err_set(err, ERR_REJECT, "%s [%d] from offset %lld cannot be read",
		    asked->topic, asked->partition, (long long)asked->offset);
	if (!open_fd(tail, err) || !open_tail_client(tail, err))
		return false;

	/*
	 * Before the topic is looked up: the end of the old client frees topics without questions.
	 */
	if (tail->partitions - tail->asked >= MOST_ANSWERED || client_files_is_stale(tail->handle))
		renew_client(tail);
	topic = find_tail_topic(tail, asked->topic, err);
	if (!topic)
		return false;
	question = find_question(tail, topic, asked->partition);
	question->asked = question->begin = question->position = asked->offset;
	question->least = asked->least;
	question->number = asked->number;
	question->stable = question->unstable_at = 0;
	backoff_reset(&question->backoff);
	tail->idle_at = 0;
	begin_question(tail, question);
	return true;
}

void tail_drop(struct tail *tail, const char *name, int32_t partition)
{
	struct topic *topic;

	HASH_FIND_STR(tail->topics, name, topic);
	if (topic && partition >= 0 && partition < topic->count && topic->questions[partition])
		stop_question(tail, topic->questions[partition], QUIET);
}

void tail_forget(struct tail *tail)
{
	for (struct topic *topic = tail->topics; topic; topic = topic->hh.next)
		for (int32_t i = 0; i < topic->count; i++)
			if (topic->questions[i] && topic->questions[i]->state != QUIET)
				stop_question(tail, topic->questions[i], QUIET);
}

int tail_fd(const struct tail *tail)
{
	return tail->asked > 0 ? tail->wake_fd : -1;
}

bool tail_is_open(const struct tail *tail)
{
	return tail->handle != NULL;
}

int tail_partitions(const struct tail *tail)
{
	return tail->partitions;
}

int64_t tail_wait(const struct tail *tail)
{
	if (!tail->handle)
		return INT64_MAX;
	if (tail->asked == 0)
		return tail->idle_at;
	return tail->due_at < tail->again_at ? tail->due_at : tail->again_at;
}

static void set_due(struct tail *tail, struct question *question, int64_t at)
{
	question->due = at;
	if (at < tail->due_at)
		tail->due_at = at;
}

/* Begins again after a while, from the position reached. */
static void begin_later(struct tail *tail, struct question *question, int64_t now)
{
	stop_question(tail, question, WAITING);
	question->met = false;
	set_due(tail, question, now + backoff_next_ms(&question->backoff));
}

static void begin_event(const struct question *question, int kind, struct tail_event *ret_event)
{
	ret_event->kind = kind;
	ret_event->topic = question->topic->name;
	ret_event->partition = question->partition;
	ret_event->number = question->number;
}

static bool answer_question(struct tail *tail, struct question *question, int kind, int64_t first,
    int64_t end, struct tail_event *ret_event)
{
	stop_question(tail, question, QUIET);
	begin_event(question, kind, ret_event);
	ret_event->asked = question->asked;
	ret_event->begin = first;
	ret_event->end = end;
	return true;
}

/* NULL: it reads nothing now. */
static struct question *started_question(struct tail *tail, const char *name, int32_t partition)
{
	struct question *question;
	struct topic *topic;

	HASH_FIND_STR(tail->topics, name, topic);
	question = topic && partition < topic->count ? topic->questions[partition] : NULL;
	return question && is_started(question) ? question : NULL;
}

static bool tell_question_failure(const struct question *question, enum err_kind kind,
    const char *why, struct tail_event *ret_event)
{
	begin_event(question, TAIL_FAILED, ret_event);
	err_set(&ret_event->failure, kind, "%s [%d]: %s", question->topic->name,
	    question->partition, why);
	return true;
}

/* As the last Fetch told them. */
static void known_offsets(
    const struct tail *tail, const struct question *question, int64_t *ret_low, int64_t *ret_high)
{
	*ret_low = *ret_high = -1;
	rd_kafka_get_watermark_offsets(
	    tail->handle, question->topic->name, question->partition, ret_low, ret_high);
}

/* Committed records may lie between the end and the high watermark. */
static bool wait_for_transactions(
    struct tail *tail, struct question *question, int64_t now, struct tail_event *ret_event)
{
	stop_question(tail, question, WAITING);
	set_due(tail, question, now + STABLE_MS);
	if (!question->unstable_at)
		question->unstable_at = now;
	if (now - question->unstable_at < PATIENCE_MS)
		return false;
	question->unstable_at = now;
	return tell_question_failure(
	    question, ERR_RETRY, "a transaction that is open on it is waited for", ret_event);
}

/* Asking is over. */
static bool take_question_answer(struct tail *tail, struct question *question, int64_t end,
    int64_t now, struct tail_event *ret_event)
{
	int64_t low, high;

	if (question->position == TAIL_FROM_END)
		return answer_question(tail, question, TAIL_END, end, end, ret_event);
	known_offsets(tail, question, &low, &high);
	/*
	 * Read uncommitted, the end is the high watermark; the one of the last Fetch may be older.
	 */
	if (high < end || text_equal(tail->isolation, "read_uncommitted"))
		high = end;
	/*
	 * Compared with `high`, since an open transaction may hold the committed end back.
	 */
	if (question->position > high || question->least > high)
		return answer_question(tail, question, TAIL_BEYOND, low, end, ret_event);
	/*
	 * Only transactions at the time of the question matter: records of later ones came after
	 * it.
	 */
	if (!question->stable)
		question->stable = high;
	if (end < question->stable)
		return wait_for_transactions(tail, question, now, ret_event);
	/* Retention has removed the records before `low`. */
	if (question->position < low)
		question->begin = question->position = low;
	if (question->position >= end)
		return answer_question(tail, question, TAIL_END, question->begin, end, ret_event);
	question->end = end;
	start_question(tail, question, READING, question->position);
	return false;
}

static bool answer_read(struct tail *tail, struct question *question, struct tail_event *ret_event)
{
	return answer_question(tail, question, TAIL_END, question->begin, question->end, ret_event);
}

static bool take_tail_record(struct tail *tail, struct question *question,
    rd_kafka_message_t *message, int64_t now, struct tail_event *ret_event)
{
	if (question->state == ASKING)
		return take_question_answer(tail, question, message->offset, now, ret_event);
	if (message->offset >= question->end)
		return answer_read(tail, question, ret_event);
	backoff_reset(&question->backoff);
	question->position = message->offset + 1;
	tail->run++;
	tail->run_bytes += (int64_t)(message->len + message->key_len);
	begin_event(question, TAIL_RECORD, ret_event);
	ret_event->record = consumer_record_of(message);
	return true;
}

/* A Fetch found nothing more at that offset; markers and gaps before it are behind us. */
static bool take_end(struct tail *tail, struct question *question, int64_t offset, int64_t now,
    struct tail_event *ret_event)
{
	if (question->state == ASKING)
		return take_question_answer(tail, question, offset, now, ret_event);
	if (offset >= question->end)
		return answer_read(tail, question, ret_event);
	/* Cut off meanwhile, or the leader changed once more. */
	begin_later(tail, question, now);
	return false;
}

/* There is no such offset. */
static void take_offset_refusal(struct tail *tail, struct question *question, int64_t now)
{
	if (question->state != KNOCKING) {
		begin_later(tail, question, now);
		return;
	}
	question->met = true;
	start_question(tail, question, ASKING, RD_KAFKA_OFFSET_END);
}

static enum err_kind kind_of(rd_kafka_resp_err_t code)
{
	return kafka_client_is_missing(code) || code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION
		   ? ERR_REJECT
		   : kafka_error_kind(code);
}

static bool take_failure(struct tail *tail, struct question *question, rd_kafka_event_t *event,
    int64_t now, struct tail_event *ret_event)
{
	rd_kafka_resp_err_t code = rd_kafka_event_error(event);
	enum err_kind kind = kind_of(code);
	char why[768];

	kafka_client_explain(
	    tail->handle, code, rd_kafka_event_error_string(event), why, sizeof why);
	if (kind == ERR_RETRY)
		begin_later(tail, question, now);
	else
		stop_question(tail, question, QUIET);
	return tell_question_failure(question, kind, why, ret_event);
}

static bool take_partition_error(struct tail *tail, struct question *question,
    rd_kafka_event_t *event, int64_t offset, int64_t now, struct tail_event *ret_event)
{
	set_due(tail, question, now + PATIENCE_MS);
	switch (rd_kafka_event_error(event)) {
	case RD_KAFKA_RESP_ERR__PARTITION_EOF:
		return take_end(tail, question, offset, now, ret_event);
	case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
		take_offset_refusal(tail, question, now);
		return false;
	default:
		return take_failure(tail, question, event, now, ret_event);
	}
}

/*
 * An error of the whole cluster: a broker that is away, a wrong password. librdkafka keeps trying.
 */
static bool take_cluster_error(
    struct tail *tail, rd_kafka_event_t *event, struct tail_event *ret_event)
{
	char why[768];

	if (tail->asked == 0)
		return false;
	ret_event->kind = TAIL_FAILED;
	kafka_client_explain(tail->handle, rd_kafka_event_error(event),
	    rd_kafka_event_error_string(event), why, sizeof why);
	return !err_set(&ret_event->failure, ERR_RETRY, "%s", why);
}

static bool take_tail_error(
    struct tail *tail, rd_kafka_event_t *event, int64_t now, struct tail_event *ret_event)
{
	rd_kafka_topic_partition_t *of = rd_kafka_event_topic_partition(event);
	struct question *question;
	bool told;

	if (!of)
		return take_cluster_error(tail, event, ret_event);
	question = started_question(tail, of->topic, of->partition);
	told = question && take_partition_error(tail, question, event, of->offset, now, ret_event);
	rd_kafka_topic_partition_destroy(of);
	return told;
}

static bool take_tail_message(
    struct tail *tail, rd_kafka_event_t *event, int64_t now, struct tail_event *ret_event)
{
	/* The event is ours, and so its message. */
	rd_kafka_message_t *message = (rd_kafka_message_t *)rd_kafka_event_message_next(event);
	struct topic *topic = rd_kafka_topic_opaque(message->rkt);
	struct question *question = topic->questions[message->partition];

	if (!is_started(question))
		return false;
	set_due(tail, question, now + PATIENCE_MS);
	return take_tail_record(tail, question, message, now, ret_event);
}

/*
 * Does librdkafka know the partition? This is its only function that answers without waiting for
 * Kafka and without inventing the partition; it stores nothing for partitions that nobody assigned.
 */
static bool is_known_partition(const struct topic *topic, int32_t partition)
{
	return rd_kafka_offset_store(topic->handle, partition, 0) !=
	       RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
}

/*
 * A partition that the topic does not have is no error to librdkafka when it knew the topic before:
 * nothing ever comes.
 */
static bool tell_question_silence(
    struct tail *tail, struct question *question, int64_t now, struct tail_event *ret_event)
{
	if (is_known_partition(question->topic, 0) &&
	    !is_known_partition(question->topic, question->partition)) {
		stop_question(tail, question, QUIET);
		return tell_question_failure(
		    question, ERR_REJECT, "the topic has no such partition", ret_event);
	}
	set_due(tail, question, now + PATIENCE_MS);
	return tell_question_failure(question, ERR_RETRY, "no answer from Kafka yet", ret_event);
}

static bool serve_due(
    struct tail *tail, struct question *question, int64_t now, struct tail_event *ret_event)
{
	if (question->due > now)
		return false;
	if (question->state == WAITING)
		begin_question(tail, question);
	if (question->due != 0)
		return tell_question_silence(tail, question, now, ret_event);
	question->due = now + PATIENCE_MS;
	return false;
}

static bool visit_due(struct tail *tail, int64_t now, struct tail_event *ret_event)
{
	int64_t next = INT64_MAX;

	if (now < tail->due_at)
		return false;
	for (struct topic *topic = tail->topics; topic; topic = topic->hh.next)
		for (int32_t i = 0; i < topic->count; i++) {
			struct question *question = topic->questions[i];

			if (!question || question->state == QUIET)
				continue;
			if (serve_due(tail, question, now, ret_event)) {
				tail->due_at = now; /* the rest of them with the next call */
				return true;
			}
			next = question->due < next ? question->due : next;
		}
	tail->due_at = next;
	return false;
}

static bool take_tail_event(
    struct tail *tail, rd_kafka_event_t *event, int64_t now, struct tail_event *ret_event)
{
	switch (rd_kafka_event_type(event)) {
	case RD_KAFKA_EVENT_FETCH:
		return take_tail_message(tail, event, now, ret_event);
	case RD_KAFKA_EVENT_ERROR:
		return take_tail_error(tail, event, now, ret_event);
	default:
		return false;
	}
}

static int restart_readings(struct tail *tail)
{
	int count = 0;

	for (struct topic *topic = tail->topics; topic; topic = topic->hh.next)
		for (int32_t i = 0; i < topic->count; i++) {
			struct question *question = topic->questions[i];

			if (!question || question->state != READING)
				continue;
			start_question(tail, question, READING, question->position);
			count++;
		}
	return count;
}

/*
 * Nothing is ready. Once so much was that librdkafka stopped fetching, it looks again after a
 * second, however soon all was taken; a start makes it look at once. Twice as often as needed,
 * since it counts a little otherwise. The answer to a fetch from before a start can stop it as
 * well, and is dropped unseen: when nothing comes after a start, there is another one, later each
 * time until something does, or questions to a slower broker would be in vain.
 */
static void keep_tail_fetching(struct tail *tail, int64_t now)
{
	bool stopped = tail->run >= READY_MESSAGES / 2 || tail->run_bytes >= READY_BYTES / 2;

	if (tail->run > 0 && tail->again_at < INT64_MAX)
		tail->again_at = now + tail->again_ms;
	tail->run = tail->run_bytes = 0;
	if (!stopped && now < tail->again_at)
		return;
	if (!stopped && tail->again_ms < LOOK_MS)
		tail->again_ms *= 2;
	tail->again_at = restart_readings(tail) > 0 ? now + tail->again_ms : INT64_MAX;
}

static void wake_tail_fd(int fd)
{
	/* Fails only when the counter is full, and then the fd is readable all the same. */
	if (eventfd_write(fd, 1) != 0)
		return;
}

/*
 * librdkafka writes the eventfd when the queue stops being empty, once until somebody reads the
 * queue. So it is read only after the queue was found empty, and then the queue is checked again;
 * if that finds something, the eventfd is written again.
 */
static bool take_some(struct tail *tail, int64_t now, struct tail_event *ret_event)
{
	bool fd_was_read = false, told = false;

	for (int i = 0; i < BUNCH && !told; i++) {
		eventfd_t ignored;

		drop_shown(tail);
		tail->shown = rd_kafka_queue_poll(tail->queue, 0);
		if (tail->shown) {
			told = take_tail_event(tail, tail->shown, now, ret_event);
			continue;
		}
		if (fd_was_read)
			return false;
		keep_tail_fetching(tail, now);
		/* EAGAIN: it was called without having been woken. */
		fd_was_read = eventfd_read(tail->wake_fd, &ignored) == 0 || errno == EAGAIN;
	}
	if (fd_was_read)
		wake_tail_fd(tail->wake_fd);
	return told;
}

static void serve_idle(struct tail *tail, int64_t now)
{
	if (tail->asked > 0)
		return;
	if (tail->idle_at == 0)
		tail->idle_at = now + tail->idle_ms;
	if (now >= tail->idle_at)
		close_tail_client(tail, 0);
}

bool tail_next(struct tail *tail, int64_t now, struct tail_event *ret_event)
{
	drop_shown(tail);
	if (!tail->handle)
		return false;
	if (client_files_is_stale(tail->handle))
		renew_client(tail);
	*ret_event = (struct tail_event){0};
	if (take_some(tail, now, ret_event) || visit_due(tail, now, ret_event))
		return true;
	serve_idle(tail, now);
	return false;
}
