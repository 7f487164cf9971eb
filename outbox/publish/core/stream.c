/*
 * One shard of a publisher: take it, look for windows, send their rows, note what Kafka
 * acknowledged.
 *
 * The log row n that this owner wrote last says: everything visible in ticks[1] is published; then
 * come the open windows. TICK writes row n + 1 out of row n: it drops the windows that are
 * published to their end (`closed`), notes progress in the next one (`acked_id`), renews the lease
 * and, when it finds rows, opens one more window, whose rows may go out once the row is committed.
 * One call is under way at a time; while its commit is waited for, records flow and are
 * acknowledged.
 *
 * Reading runs ahead of acknowledging: a window is opened when all windows before it are read to
 * their end, however many of them still wait for Kafka. A small window's rows come with the answer
 * of TICK; a large one, or one inherited from a former owner, is read by pages. A record that has
 * to wait (its topic is missing) keeps its window open while others go on: beyond MANY_WINDOWS new
 * ones are opened ever more slowly, so that they hold more rows each, and at most MAX_WINDOWS.
 *
 * Bounds: rows in memory cost at most `memory` (a page is asked for when there is room for a whole
 * one); records given to the producer and not covered by a committed row are at most
 * `max_in_flight`. With transactions that is the most in one, and as many more may go out while the
 * row that covers it is being written.
 *
 * Parked and scheduled rows (record_queue_parks.c) come back as a listed window, one at a time,
 * opened by TICK when one is due: the number of requests of operators and the time of the next one
 * come with each answer.
 *
 * Stop: what was sent is waited for and noted, for as long as the lease of the moment runs. Then
 * the producer goes with what it still holds, and only then the shard is released.
 *
 * Lease: counted from before the sending of the last row that was written. Once it is over nothing
 * is given to the producer, and what is in its queue is purged: another owner may be at work.
 *
 * Each call has a third of the lease (shard_worker.c), and a TICK is due when the last row is a
 * third of the lease old. After a TICK that failed, RENEW comes first: it touches no table but the
 * log. So an owner keeps its shard however long its other statements fail. A TICK that took too
 * long comes again with half as much to do, and opens its window without a look at the rows.
 *
 * Transactions: a producer that is new fences all others (init_transactions). The log row written
 * next tells whether the shard is still ours; then the tails tell which rows were committed, and
 * nothing that was in a transaction before is believed. What is written counts when its transaction
 * is committed: as soon as nothing more can go out, or TRANSACTION_MS after its first record, or
 * when it leaves no room in memory for a page of the next. After one that failed the next is half
 * as large, so that what fails now and then does not fail for ever.
 *
 * After the deaths of owners the poison guard may be active: rows are read one at a time
 * (poison_guard.h).
 *
 * A call whose answer was lost is unsure: the newest row tells. It carries the nonce of the call
 * (then it was written), or the one before (then it was not), or a stranger's: then the shard is
 * lost, memory is forgotten, and the stream begins again as anybody who wants the shard.
 */
#include "stream.h"

#include <assert.h>
#include <stdlib.h>

#include "record_queue.h"

enum {
	MANY_WINDOWS = 16,
	MAX_WINDOWS = 256,
	PAGE_ROWS_MAX = 16384,
	SMALL_WINDOW_ROWS = 1000,
	PLACES_A_PAGE = 500,
	BATCH_ROWS = 500,  /* parked rows that one tick frees, retries or skips, at most */
	PARKS_A_ROW = 500, /* at most */
	BATCH_ROWS_LEAST = 50,
	BATCH_MS = 10,       /* a tick works with such rows for about so long */
	RETRY_FIRST_MS = 50, /* after a failed call, doubled up to the next */
	RETRY_MAX_MS = 1000,
	RECENTLY_MS = 100,    /* after rows were seen the poll stays busy for so long */
	STILL_MS = 3000,      /* nothing found, nothing acknowledged: it stands still */
	TOPICS_A_PAGE = 1000, /* open topics in a page after a take-over */
	PARTITIONS_A_PAGE = 4000,
	CHECKS = 100,          /* closed topics that are looked for at a time */
	TAILS_AGAIN_MS = 5000, /* with transactions, those that cannot be read */
	TRANSACTION_MS = 200,
	OPEN_WINDOW_MS =
	    60,       /* outbox.listed_wait of a row whose window is open, and the way back */
	TURN_MS = 20, /* the poison guard of another shard of the process has the turn */
	/*
	 * The database answers with this time when rows are due whose windows are still open. Rows
	 * of closed windows may be behind them, so the records found in tails are kept.
	 */
	BLOCKED_LOOK_MS = 50,
	MOST_HALVES = 9, /* of that: 0 */
	SAME_ID = 8,
};

struct window {
	int64_t tick;
	int64_t last_id;  /* read so far */
	int64_t acked_id; /* published so far, contiguous */
	uint64_t end;     /* the number after its last record; 0: rows are yet to be read */
	/*
	 * Rows with the id `last_id` that came with the page under way. Several rows have one id
	 * after the sequence went back. When the page fails, the next one begins in front of this
	 * id, and these rows are left out of it.
	 */
	int64_t same[SAME_ID]; /* created_us */
	int same_count;
	bool again; /* the page failed; some of these rows came before it did */
};

struct call {
	struct stream_tick tick; /* call NONE: nothing under way */
	int64_t issued;
	uint64_t acked;
	bool renews;   /* the new epoch is ours at once; why it was wanted may be over meanwhile */
	bool confirms; /* sent after the producer had fenced all others */
	struct poison_guard_row guard_row;
};

/* With transactions; without, a producer is confirmed from the start. */
enum producer_phase {
	PRODUCER_NEW,   /* others may still write */
	PRODUCER_READY, /* it has fenced all others; the next log row tells whose the shard is */
	PRODUCER_CONFIRMED, /* and a log row was written since, with an answer */
};

/* Rows of a page or a TICK are to come; those of a page of a lost shard are not expected. */
enum expected_rows { ROWS_NONE, ROWS_WHOLE, ROWS_WITHHELD /* without their contents */ };

struct stream {
	struct stream_settings settings;
	struct record_queue *queue;
	enum stream_state state; /* stream_move sets it */
	uint64_t random;
	int64_t n, nonce;
	int64_t epoch;          /* of what we send */
	int64_t logged_epoch;   /* of who takes the shard next; another one after a refusal */
	struct window *windows; /* oldest first */
	int window_count, window_capacity;
	int64_t first_tick; /* of the acknowledged snapshot: windows[0] is first_tick + 1 */
	int64_t former_epoch, inherited_tick; /* the newest window's when the shard was taken */
	int64_t tail_tick; /* records were found of windows up to here; 0: none are kept */
	bool tail_open;    /* or up to the next one: a failover may have taken theirs back */
	/* Open destinations are yet to be read, behind open_after. */
	bool open_unknown;
	struct text open_after;
	struct pg_array topics; /* argument of the call under way */
	int64_t load_at;        /* destinations are read, not before */
	int64_t check_at;       /* closed topics are looked for, those behind check_after */
	struct text check_after;
	int64_t strange_until; /* what a former owner wrote is not all known; 0: it is */
	bool rewound; /* Kafka knows positions that the log does not; a tail may say so at any time
		       */
	int64_t rewinds; /* log rows that began a new epoch for that reason */
	struct call call;
	struct text destinations;
	char *parks;         /* argument of the call under way */
	int64_t listed_tick; /* the open window that is a listed one; 0: none */
	int64_t list_at;     /* a parked or scheduled row may be due; INT64_MAX: none */
	int64_t requests;
	/* Rows are parked, and not all stalled places are known; asked behind open destinations. */
	bool places_unknown;
	char *after_topic; /* the last one of those that are */
	int32_t after_partition;
	bool looks_first;   /* a TICK was the last call: it is the turn of look-ups and pages of
			       digests */
	int64_t written_at; /* when the last written row was sent */
	int64_t lease_over_at;
	int64_t progress_at; /* since when there is progress to note; 0: none */
	int64_t next_take, next_poll, poll_interval, rows_at, retry_at;
	int failures;     /* consecutive failures of log calls */
	int64_t renew_at; /* the next call is RENEW, not before this time; INT64_MAX: it is not */
	int64_t batch;    /* parked rows of the next TICK */
	int64_t rest_us;  /* the rest of such a TICK takes so long: a moving average */
	int halves;       /* a TICK was late: the next one has half as much to do, so many times */
	/* A look was late: the next one opens its window without looking. Not every late TICK
	 * looked. */
	bool blind;
	int read_failures; /* of pages in a row */
	int64_t read_at;   /* the next page not before */
	int64_t page_cost; /* average of a row, for the size of the next page */
	int64_t moved_at;  /* last acknowledgement, or when records began to go out */
	const char *producer_verdict;
	enum producer_phase producer;
	/* A commit is under way. The producer need not be confirmed then: see unsure_written. */
	bool committing;
	int64_t transaction_at; /* when its first record went out */
	int64_t transaction_records, transaction_limit, transaction_bytes;
	int64_t tails_again_at;
	bool found_nothing; /* the last look found no window */
	enum expected_rows rows;
	bool stopping; /* stream_stop was called; an owner notes what it has sent before it ends */
	int64_t stop_by;
	int64_t published, published_bytes;
	struct poison_guard guard;
	int64_t marked_at;
};

/* splitmix64: nonces and epochs are drawn from it; positive. */
static int64_t draw_stream_number(struct stream *stream)
{
	uint64_t z = (stream->random += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (int64_t)((z ^ (z >> 31)) >> 1) | 1;
}

int64_t stream_most_uncovered(const struct stream_settings *settings)
{
	return settings->max_in_flight * (settings->transactions ? 2 : 1);
}

static int64_t most_batch(const struct stream *stream)
{
	return stream->settings.parking.batch ? stream->settings.parking.batch : BATCH_ROWS;
}

struct stream *stream_create(const struct stream_settings *settings)
{
	struct stream *stream = xcalloc(1, sizeof *stream);
	stream->settings = *settings;
	stream->random = settings->seed;
	stream->queue = record_queue_create(settings);
	stream->producer = settings->transactions ? PRODUCER_NEW : PRODUCER_CONFIRMED;
	stream->renew_at = INT64_MAX;
	stream->guard.turn = settings->turn;
	stream->transaction_limit = settings->max_in_flight;
	stream->page_cost = 1024;
	stream->batch = most_batch(stream);
	stream->poll_interval = settings->poll_busy_ms;
	return stream;
}

void stream_destroy(struct stream *stream)
{
	if (!stream)
		return;
	record_queue_destroy(stream->queue);
	poison_guard_end(&stream->guard);
	text_finish(&stream->destinations);
	text_finish(&stream->open_after);
	text_finish(&stream->check_after);
	pg_array_finish(&stream->topics);
	free(stream->parks);
	free(stream->after_topic);
	free(stream->windows);
	free(stream);
}

void stream_retune(struct stream *stream, const struct stream_settings *settings)
{
	stream->settings.poll_busy_ms = settings->poll_busy_ms;
	stream->settings.poll_idle_ms = settings->poll_idle_ms;
	stream->settings.ack_interval_ms = settings->ack_interval_ms;
	stream->poll_interval = settings->poll_busy_ms;
}

static int64_t earlier_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* --- windows ------------------------------------------------------------------------------ */

static struct window *push_window(struct stream *stream, int64_t tick, int64_t acked_id)
{
	if (stream->window_count == stream->window_capacity) {
		stream->window_capacity = stream->window_capacity ? stream->window_capacity * 2 : 8;
		stream->windows = xrealloc(
		    stream->windows, (size_t)stream->window_capacity * sizeof *stream->windows);
	}
	struct window *window = &stream->windows[stream->window_count++];
	*window = (struct window){.tick = tick, .last_id = acked_id, .acked_id = acked_id};
	return window;
}

/* The window that is being read; NULL: all are complete. */
static struct window *reading_window(const struct stream *stream)
{
	for (int i = 0; i < stream->window_count; i++)
		if (!stream->windows[i].end)
			return &stream->windows[i];
	return NULL;
}

static void pass_acked(struct stream *stream)
{
	int64_t tick, id;
	int i = 0;
	while (record_queue_pass(stream->queue, &tick, &id)) {
		while (stream->windows[i].tick != tick)
			i++;
		stream->windows[i].acked_id = id;
	}
}

static int published_windows(const struct stream *stream)
{
	int count = 0;
	while (count < stream->window_count && stream->windows[count].end &&
	       stream->windows[count].end <= record_queue_acked(stream->queue))
		count++;
	return count;
}

static void close_windows(struct stream *stream, int count)
{
	assert(count <= stream->window_count);
	stream->window_count -= count;
	for (int i = 0; i < stream->window_count; i++)
		stream->windows[i] = stream->windows[i + count];
	stream->first_tick += count;
	if (stream->listed_tick && stream->first_tick >= stream->listed_tick) {
		record_queue_listed_closed(stream->queue);
		stream->listed_tick = 0;
	}
}

/* --- states ------------------------------------------------------------------------------- */

#define MAY(state) (1U << STREAM_##state)

static const struct state_row stream_rows[STREAM_STATES] = {
    [STREAM_STANDBY] = {"standby", MAY(OWNER) | MAY(RELEASED) | MAY(GONE),
	"another relay owns the shard, or this one is about to take it"},
    [STREAM_OWNER] = {"owner", MAY(STANDBY) | MAY(UNSURE) | MAY(RELEASED) | MAY(GONE),
	"this relay owns the shard and publishes its messages"},
    [STREAM_UNSURE] = {"unsure", MAY(OWNER) | MAY(STANDBY),
	"the owner lost the answer of the database, and asks whether its log row was written"},
    [STREAM_RELEASED] = {"released", 0, "the relay has stopped and given the shard back"},
    [STREAM_GONE] = {"gone", 0, "the publisher was dropped or has another number of shards"},
};

const struct state_table stream_states = {
    "stream of a shard", stream_rows, STREAM_STATES, STREAM_STANDBY};

/* Why the producer of a lost shard goes. Its records stay in memory until then. */
static const char lost_shard[] = "the shard has another owner";

static bool is_forgetting(const struct stream *stream)
{
	return stream->producer_verdict == lost_shard;
}

static void check_stream(const struct stream *stream)
{
	enum stream_call call = stream->call.tick.call;
	switch (stream->state) {
	case STREAM_STANDBY:
	case STREAM_GONE:
		assert(call == STREAM_NONE && stream->window_count == 0);
		assert(stream->lease_over_at == 0 && stream->renew_at == INT64_MAX);
		assert(stream->rows == ROWS_NONE && !stream->guard.active);
		assert(is_forgetting(stream) || record_queue_count(stream->queue) == 0);
		break;
	case STREAM_OWNER:
		assert(stream->lease_over_at != 0 && !is_forgetting(stream));
		break;
	case STREAM_UNSURE: /* RENEW follows, unless the row was written */
		assert(call == STREAM_TICK || call == STREAM_RENEW);
		assert(stream->renew_at != INT64_MAX && !is_forgetting(stream));
		break;
	case STREAM_RELEASED:
		assert(stream->stopping && record_queue_under_way(stream->queue) == 0);
		break;
	default:
		assert(!"a state of a stream");
	}
}

/* The fields that the new state needs are set before. */
static void stream_move(struct stream *stream, enum stream_state state)
{
	states_check(&stream_states, stream->state, state);
	stream->state = state;
	if (STATES_CHECKED)
		check_stream(stream);
}

/* --- ownership ---------------------------------------------------------------------------- */

static bool lease_is_over(const struct stream *stream, int64_t now)
{
	return now >= stream->lease_over_at;
}

/*
 * Memory is forgotten at once, but for the records: the producer may hold their payloads, so they
 * go when it is gone (stream_producer_lost). Until then nothing is taken, sent or believed.
 */
static void forget_shard(struct stream *stream, int64_t now, enum stream_state state)
{
	if (record_queue_under_way(stream->queue) ||
	    (stream->settings.transactions && stream->producer != PRODUCER_NEW))
		stream->producer_verdict = lost_shard;
	else
		record_queue_forget(stream->queue);
	poison_guard_end(&stream->guard);
	stream->window_count = 0;
	stream->call = (struct call){0};
	stream->progress_at = stream->tail_tick = stream->listed_tick = 0;
	stream->places_unknown = stream->looks_first = stream->tail_open = stream->blind =
	    stream->open_unknown = stream->found_nothing = stream->rewound = false;
	stream->rows = ROWS_NONE;
	stream->halves = 0;
	stream->next_take = now;
	stream->renew_at = INT64_MAX;
	stream->lease_over_at = 0;
	stream_move(stream, state);
}

void stream_taken(struct stream *stream, int64_t now, const struct stream_taken *taken)
{
	assert(stream->call.tick.call == STREAM_TAKE);
	stream->n = taken->n;
	stream->nonce = stream->call.tick.new_nonce;
	stream->epoch = stream->logged_epoch = taken->epoch;
	stream->written_at = stream->call.issued;
	stream->lease_over_at = stream->call.issued + stream->settings.lease_ms;
	stream->first_tick = taken->first_tick;
	stream->former_epoch = taken->former_epoch;
	stream->listed_tick = taken->listed_tick;
	stream->places_unknown = taken->parked;
	free(stream->after_topic);
	stream->after_topic = NULL;
	stream->open_unknown = true;
	text_clear(&stream->open_after);
	stream->load_at = now;
	stream->check_at = now + stream->settings.topic_idle_ms;
	record_queue_taken(stream->queue, now, taken->n);
	stream->requests = taken->requests;
	stream->list_at = taken->parked || taken->scheduled ? now : INT64_MAX;
	stream->inherited_tick = taken->first_tick + taken->windows;
	record_queue_keys_taken(stream->queue, taken->parked, stream->inherited_tick);
	int64_t most = stream_most_uncovered(&stream->settings); /* or a page that was read */
	poison_guard_begin(&stream->guard, &taken->deaths, stream->inherited_tick,
	    most < PAGE_ROWS_MAX ? PAGE_ROWS_MAX : most);
	stream->strange_until = now + stream->settings.stall_after_ms;
	for (int i = 0; i < taken->windows; i++)
		push_window(stream, taken->first_tick + 1 + i, i == 0 ? taken->acked_id : 0);
	stream->call = (struct call){0};
	stream->failures = 0;
	stream->next_poll = stream->retry_at = now;
	stream->moved_at = now;
	stream_move(stream, STREAM_OWNER);
}

void stream_not_taken(struct stream *stream, int64_t now, int64_t retry_ms)
{
	stream->call = (struct call){0};
	stream->failures = 0;
	stream->next_take = now + retry_ms;
}

void stream_absent(struct stream *stream, int64_t now)
{
	forget_shard(stream, now, STREAM_GONE);
}

/* --- the log connection ------------------------------------------------------------------- */

static int64_t page_budget(const struct stream *stream)
{
	return stream->settings.memory / 4;
}

static bool has_page_room(const struct stream *stream)
{
	return record_queue_bytes(stream->queue) + record_queue_kept_bytes(stream->queue) +
		   record_queue_found_bytes(stream->queue) + page_budget(stream) <=
	       stream->settings.memory;
}

/*
 * Positions that Kafka has and the log does not are recognised by their ticks: none is given out
 * before the tails are read. A partition that is away does not stop the others for ever.
 */
static bool is_strange(struct stream *stream, int64_t now)
{
	bool awaits = stream->open_unknown || record_queue_awaits_first_tails(stream->queue);
	if (stream->strange_until && (now >= stream->strange_until || !awaits))
		stream->strange_until = 0;
	return stream->strange_until;
}

static bool may_open(const struct stream *stream)
{
	return !stream->stopping && !record_queue_refused(stream->queue) &&
	       !reading_window(stream) && stream->window_count < MAX_WINDOWS &&
	       has_page_room(stream) && !record_queue_has_changed_topics(stream->queue) &&
	       !record_queue_is_full(stream->queue);
}

static bool has_progress(const struct stream *stream)
{
	return record_queue_acked(stream->queue) > record_queue_covered(stream->queue) ||
	       published_windows(stream);
}

static void watch_progress(struct stream *stream, int64_t now)
{
	if (!has_progress(stream))
		stream->progress_at = 0;
	else if (!stream->progress_at)
		stream->progress_at = now;
}

/* Only then does the next one come. */
static bool listed_is_published(const struct stream *stream)
{
	return stream->listed_tick &&
	       stream->first_tick + published_windows(stream) >= stream->listed_tick;
}

static bool must_note_progress(const struct stream *stream, int64_t now)
{
	int64_t unnoted =
	    (int64_t)(record_queue_acked(stream->queue) - record_queue_covered(stream->queue));
	return has_progress(stream) &&
	       (listed_is_published(stream) ||
		   unnoted >= (stream->settings.max_in_flight + 3) / 4 ||
		   record_queue_is_full(stream->queue) || stream->window_count >= MANY_WINDOWS ||
		   (stream->progress_at &&
		       now - stream->progress_at >= stream->settings.ack_interval_ms));
}

/* From here on nothing more is sent, and what is under way goes with its producer. */
static bool must_end(const struct stream *stream, int64_t now)
{
	return stream->stopping && now >= stream->stop_by;
}

/*
 * Gaps are closed first: what Kafka has behind one could not be noted and would be repeated. With
 * anything under way the shard is kept: the producer would go on writing beside the next owner's.
 */
static bool wants_release(const struct stream *stream, int64_t now)
{
	return stream->stopping && !record_queue_under_way(stream->queue) &&
	       (must_end(stream, now) ||
		   (!record_queue_has_gap(stream->queue) && !record_queue_written(stream->queue) &&
		       !record_queue_keeps_back(stream->queue)));
}

static bool renewal_is_due(const struct stream *stream, int64_t now)
{
	return now - stream->written_at >= stream->settings.lease_ms / 3;
}

/* Kafka has nothing of ours that does not count yet. */
static bool is_producer_settled(const struct stream *stream)
{
	return !record_queue_under_way(stream->queue) && !record_queue_written(stream->queue);
}

static bool changes_counts(const struct stream *stream)
{
	return record_queue_has_changed_topics(stream->queue) && is_producer_settled(stream);
}

/*
 * Records pass the refused one, and once its cause is mended it is sent by another owner: behind
 * them, so in another epoch. That must stand in the log before they pass.
 */
static bool must_leave_epoch(const struct stream *stream)
{
	return record_queue_refused(stream->queue) && stream->logged_epoch == stream->epoch;
}

/* What is sent from here on must not carry positions that Kafka has, or had, with other contents.
 */
static bool renews_epoch(const struct stream *stream)
{
	return changes_counts(stream) || stream->rewound || record_queue_recreated(stream->queue);
}

/*
 * The poison guard is active, what was read is published, and Kafka has answered: the log row is to
 * be marked before the next row is read.
 */
static bool may_mark(struct stream *stream)
{
	return stream->guard.active && reading_window(stream) &&
	       !record_queue_count(stream->queue) && !poison_guard_reads(&stream->guard) &&
	       stream->rows == ROWS_NONE && !stream->strange_until &&
	       stream->producer == PRODUCER_CONFIRMED && !stream->stopping &&
	       !record_queue_refused(stream->queue) && poison_guard_has_turn(&stream->guard);
}

static bool must_write(struct stream *stream, int64_t now)
{
	return must_note_progress(stream, now) || wants_release(stream, now) ||
	       renews_epoch(stream) || must_leave_epoch(stream) ||
	       record_queue_has_parks(stream->queue) ||
	       record_queue_has_new_topics(stream->queue) ||
	       record_queue_must_log_tails(stream->queue) || stream->producer == PRODUCER_READY ||
	       renewal_is_due(stream, now) || may_mark(stream);
}

/*
 * None of the windows is open any more whose rows may be found. What was found then goes after a
 * look for rows kept back that has none to list: a failover may have brought back some that had
 * gone.
 */
static bool has_left_found_windows(const struct stream *stream)
{
	return stream->tail_tick && !stream->tail_open && stream->first_tick >= stream->tail_tick &&
	       !record_queue_awaits_stalled(stream->queue);
}

/*
 * One listed window at a time, and operators' requests in between. A skip may end a queue. The
 * former owner may have kept back a row of it without a note, and published later rows of the
 * partition. While the queue stands, the row is parked behind it, and is published in a later
 * window. So no queue ends before all windows of the former owner are published.
 */
static bool may_list(const struct stream *stream)
{
	return !stream->listed_tick && stream->first_tick >= stream->inherited_tick;
}

/* notes: the row does more than to renew the lease. */
static struct poison_guard_row next_guard_row(struct stream *stream, int64_t now, bool notes)
{
	const struct poison_guard_step step = {
	    .marks = notes && may_mark(stream),
	    .published =
		record_queue_count(stream->queue) == 0 || record_queue_notes_all(stream->queue),
	    .progress = notes && has_progress(stream),
	    .renews = renewal_is_due(stream, now),
	    .renews_alone = !notes,
	    .reading = stream->rows != ROWS_NONE,
	    .stuck = record_queue_count(stream->queue) &&
		     now - stream->marked_at > stream->settings.stall_after_ms,
	    .first_tick = stream->first_tick + (notes ? published_windows(stream) : 0),
	};
	return poison_guard_next(&stream->guard, &step);
}

/* How much one TICK does: less after late ones, but at least one row. */
static int64_t piece_of(const struct stream *stream, int64_t whole)
{
	int64_t piece = whole >> stream->halves;
	return piece < 1 ? 1 : piece;
}

/* As many fewer as the batch has. */
static int64_t parks_of(const struct stream *stream)
{
	return PARKS_A_ROW * stream->batch / most_batch(stream);
}

/* A shard that is to be released needs no lease. */
static bool must_renew_alone(const struct stream *stream, int64_t now)
{
	return stream->renew_at != INT64_MAX && !wants_release(stream, now);
}

static struct stream_tick renew_call(struct stream *stream)
{
	return (struct stream_tick){.call = STREAM_RENEW,
	    .n = stream->n,
	    .nonce = stream->nonce,
	    .new_nonce = draw_stream_number(stream),
	    .fresh_epoch = stream->logged_epoch,
	    .lease_ms = stream->settings.lease_ms};
}

static struct stream_tick tick_call(struct stream *stream, int64_t now)
{
	struct stream_tick tick = {.n = stream->n, .nonce = stream->nonce};
	watch_progress(stream, now);
	bool may = !is_strange(stream, now) && may_open(stream);
	tick.may_list =
	    may && may_list(stream) && (now >= stream->list_at || has_left_found_windows(stream));
	tick.may_open = may && (now >= stream->next_poll || tick.may_list);
	tick.must_write = must_write(stream, now);
	if (!tick.may_open && !tick.must_write)
		return tick;
	tick.call = STREAM_TICK;
	tick.new_nonce = draw_stream_number(stream);
	tick.new_epoch = renews_epoch(stream) || must_leave_epoch(stream);
	tick.fresh_epoch = tick.new_epoch ? draw_stream_number(stream) : stream->logged_epoch;
	tick.lease_ms = wants_release(stream, now) ? 0 : stream->settings.lease_ms;
	tick.closed = published_windows(stream);
	tick.acked_id =
	    tick.closed < stream->window_count ? stream->windows[tick.closed].acked_id : 0;
	int64_t rows = page_budget(stream) / stream->page_cost;
	tick.max_rows = rows < SMALL_WINDOW_ROWS ? rows + 1 : SMALL_WINDOW_ROWS;
	tick.max_rows = stream->guard.active ? 0 /* by pages */ : piece_of(stream, tick.max_rows);
	tick.max_bytes = piece_of(stream, page_budget(stream) / 2);
	tick.blind = stream->blind;
	tick.batch = piece_of(stream, stream->batch);
	text_clear(&stream->destinations);
	record_queue_destinations(stream->queue, stream->n + 1, changes_counts(stream),
	    stream->halves, &stream->destinations);
	tick.destinations = text_string(&stream->destinations);
	tick.fold_to = record_queue_fold_to(stream->queue, stream->n + 1);
	free(stream->parks);
	tick.parks = stream->parks =
	    record_queue_parks(stream->queue, (int)piece_of(stream, parks_of(stream)));
	return tick;
}

/*
 * Open ones first: nothing may be found too late on a partition that a former owner wrote to.
 */
static bool wants_destinations(const struct stream *stream, int64_t now)
{
	return (stream->open_unknown || record_queue_wants_destinations(stream->queue)) &&
	       now >= stream->load_at && !renewal_is_due(stream, now);
}

static bool checks_closed(const struct stream *stream, int64_t now)
{
	return stream->settings.topic_idle_ms && now >= stream->check_at && !stream->stopping &&
	       !renewal_is_due(stream, now);
}

static struct stream_tick closed_call(struct stream *stream)
{
	return (struct stream_tick){.call = STREAM_CLOSED,
	    .after = text_string(&stream->check_after),
	    .max_topics = CHECKS};
}

static struct stream_tick destinations_call(struct stream *stream)
{
	struct stream_tick tick = {.call = STREAM_DESTINATIONS,
	    .n = stream->n,
	    .nonce = stream->nonce,
	    .after = text_string(&stream->open_after),
	    .max_topics = TOPICS_A_PAGE,
	    .max_partitions = PARTITIONS_A_PAGE};
	if (stream->open_unknown)
		return tick;
	pg_array_clear(&stream->topics);
	record_queue_load(stream->queue, &stream->topics);
	tick.topics = pg_array_end(&stream->topics);
	return tick;
}

/* Behind the open destinations: a place waits for the tail of its partition. */
static bool wants_places(const struct stream *stream)
{
	return stream->places_unknown && !stream->open_unknown;
}

static struct stream_tick places_call(const struct stream *stream)
{
	return (struct stream_tick){.call = STREAM_PLACES,
	    .n = stream->n,
	    .nonce = stream->nonce,
	    .most = PLACES_A_PAGE,
	    .after_topic = stream->after_topic,
	    .after_partition = stream->after_partition};
}

/* The next query about parked keys: look-ups first, since records wait for them. */
static struct stream_tick keys_call(struct stream *stream)
{
	struct stream_tick tick = {.n = stream->n, .nonce = stream->nonce};
	if (record_queue_wants_lookup(stream->queue)) {
		tick.call = STREAM_LOOKUP;
		tick.most = record_queue_lookup_call(stream->queue, &tick.lookups);
	} else if (record_queue_wants_digests(stream->queue)) {
		tick.call = STREAM_DIGESTS;
		tick.most = record_queue_digests_call(stream->queue, &tick.from_digest);
	}
	return tick;
}

/* The two kinds take turns, so that neither waits for the end of the other. */
static struct stream_tick owner_call(struct stream *stream, int64_t now)
{
	struct stream_tick tick = {0};
	if (stream->looks_first && !renewal_is_due(stream, now))
		tick = keys_call(stream);
	if (tick.call == STREAM_NONE)
		tick = tick_call(stream, now);
	if (tick.call == STREAM_NONE && !stream->looks_first)
		tick = keys_call(stream);
	stream->looks_first = tick.call == STREAM_TICK;
	return tick;
}

static struct stream_tick next_call(struct stream *stream, int64_t now)
{
	switch (stream->state) {
	case STREAM_STANDBY:
		if (stream->producer_verdict)
			return (struct stream_tick){0};
		if (stream->stopping) {
			stream_move(stream, STREAM_RELEASED);
			return (struct stream_tick){0};
		}
		if (now < stream->next_take)
			return (struct stream_tick){0};
		return (struct stream_tick){.call = STREAM_TAKE,
		    .new_nonce = draw_stream_number(stream),
		    .fresh_epoch = draw_stream_number(stream),
		    .lease_ms = stream->settings.lease_ms};
	case STREAM_OWNER:
		if (must_renew_alone(stream, now))
			return now >= stream->renew_at ? renew_call(stream)
						       : (struct stream_tick){0};
		if (now < stream->retry_at)
			return (struct stream_tick){0};
		if (wants_destinations(stream, now))
			return destinations_call(stream);
		if (wants_places(stream) && !renewal_is_due(stream, now))
			return places_call(stream);
		if (checks_closed(stream, now))
			return closed_call(stream);
		return owner_call(stream, now);
	default:
		return (struct stream_tick){0};
	}
}

static bool writes_row(enum stream_call call)
{
	return call == STREAM_TICK || call == STREAM_RENEW;
}

struct stream_tick stream_log_call(struct stream *stream, int64_t now)
{
	if (stream->state == STREAM_UNSURE)
		return (struct stream_tick){
		    .call = now >= stream->retry_at ? STREAM_NEWEST : STREAM_NONE};
	assert(stream->call.tick.call == STREAM_NONE);
	struct stream_tick tick = next_call(stream, now);
	if (tick.call == STREAM_NONE)
		return tick;
	/* once: the turn may become free at any time */
	const struct poison_guard_row row =
	    writes_row(tick.call) ? next_guard_row(stream, now, tick.call == STREAM_TICK)
				  : (struct poison_guard_row){0};
	tick.deaths = row.deaths;
	bool renews_epoch_too = tick.call != STREAM_RENEW && renews_epoch(stream);
	stream->call = (struct call){tick, now, record_queue_acked(stream->queue), renews_epoch_too,
	    stream->producer != PRODUCER_NEW, row};
	return tick;
}

static void lease_renewed(struct stream *stream)
{
	const struct call *call = &stream->call;
	stream->n++;
	stream->nonce = call->tick.new_nonce;
	stream->written_at = call->issued;
	stream->lease_over_at = call->issued + stream->settings.lease_ms;
	if (call->confirms)
		stream->producer = PRODUCER_CONFIRMED;
	stream->renew_at = INT64_MAX;
	poison_guard_written(&stream->guard, &call->guard_row);
}

/* The row of the call under way is written: its contents are the truth from here on. */
static void call_written(struct stream *stream)
{
	const struct call *call = &stream->call;
	lease_renewed(stream);
	stream->logged_epoch = call->tick.fresh_epoch;
	if (call->renews) {
		stream->epoch = stream->logged_epoch;
		stream->rewinds += stream->rewound;
		stream->rewound = false;
		record_queue_epoch_begins(stream->queue);
	}
	stream->progress_at = 0;
	record_queue_cover(stream->queue, call->acked);
	record_queue_logged(stream->queue, stream->n, call->tick.fold_to, true);
	close_windows(stream, call->tick.closed);
	/* due rows of the windows that closed just now may be listed from here on */
	if (call->tick.closed && stream->list_at < call->issued + OPEN_WINDOW_MS)
		stream->list_at = call->issued;
	if (call->guard_row.marks)
		stream->marked_at = call->issued;
	pass_acked(stream); /* rows that it notes */
	if (call->tick.lease_ms == 0) {
		poison_guard_end(&stream->guard);
		stream_move(stream, STREAM_RELEASED);
	}
}

/* With 32 windows open the next look is 16 ms away, with 128 about 800 ms. */
static void poll_at(struct stream *stream, int64_t now, int64_t at)
{
	int64_t crowd = stream->window_count - MANY_WINDOWS;
	int64_t earliest = crowd > 0 ? now + crowd * crowd / 16 : now;
	stream->next_poll = at < earliest ? earliest : at;
}

static void schedule_poll(struct stream *stream, int64_t now, bool found)
{
	const struct stream_settings *settings = &stream->settings;
	if (found) {
		stream->rows_at = now;
		stream->poll_interval = settings->poll_busy_ms;
	} else if (now - stream->rows_at > RECENTLY_MS) {
		stream->poll_interval = stream->poll_interval ? stream->poll_interval * 2 : 1;
	}
	if (stream->poll_interval > settings->poll_idle_ms)
		stream->poll_interval = settings->poll_idle_ms;
	poll_at(stream, now, now + stream->poll_interval);
}

void stream_ticked(struct stream *stream, int64_t now, enum stream_verdict verdict)
{
	assert(stream->call.tick.call == STREAM_TICK);
	if (verdict == STREAM_FENCED || verdict == STREAM_DROPPED) {
		forget_shard(stream, now, verdict == STREAM_FENCED ? STREAM_STANDBY : STREAM_GONE);
		return;
	}
	bool looked = stream->call.tick.may_open;
	bool listed = verdict == STREAM_LISTED;
	bool rows = verdict == STREAM_ROWS || (listed && stream->call.tick.max_rows > 0);
	bool found = rows || listed || verdict == STREAM_PAGES;
	bool wrote = found || verdict == STREAM_NOTED;
	if (stream->call.tick.may_list && has_left_found_windows(stream) &&
	    verdict != STREAM_LISTED && stream->list_at > now + BLOCKED_LOOK_MS) {
		record_queue_forget_found(stream->queue);
		stream->tail_tick = 0;
	}
	stream->failures = 0;
	const struct stream_tick *tick = &stream->call.tick;
	bool worked = found || tick->parks || (wrote && (tick->may_list || tick->fold_to));
	stream->halves -= stream->halves && worked;
	stream->blind &= !looked || listed;
	if (wrote)
		call_written(stream);
	else
		record_queue_logged(stream->queue, 0, 0, false);
	stream->call = (struct call){0};
	if (looked) {
		schedule_poll(stream, now, found);
		stream->found_nothing = verdict == STREAM_IDLE;
	}
	if (rows)
		stream->rows = ROWS_WHOLE;
	if (!found)
		return;
	const struct window *window =
	    push_window(stream, stream->first_tick + stream->window_count + 1, 0);
	if (verdict == STREAM_LISTED)
		stream->listed_tick = window->tick;
	else if (stream->tail_open)
		stream->tail_tick = window->tick;
	stream->tail_open &= verdict == STREAM_LISTED;
}

void stream_renewed(struct stream *stream, int64_t now, bool written)
{
	assert(stream->call.tick.call == STREAM_RENEW);
	if (!written) {
		forget_shard(stream, now, STREAM_STANDBY);
		return;
	}
	lease_renewed(stream);
	stream->call = (struct call){0};
}

void stream_unparked(struct stream *stream, int64_t digest)
{
	record_queue_unparked(stream->queue, digest);
}

void stream_recovered(struct stream *stream, const char *topic, size_t topic_length,
    int32_t partition, int64_t last_id)
{
	record_queue_recovered(stream->queue, topic, topic_length, partition, last_id);
}

void stream_parked_news(struct stream *stream, int64_t now, int64_t requests, int64_t due_ms)
{
	const struct stream_tick *tick = &stream->call.tick;
	if (due_ms >= 0)
		stream->list_at = now + due_ms;
	else if (tick->may_list || tick->parks || stream->listed_tick)
		stream->list_at = INT64_MAX;
	if (requests != stream->requests)
		stream->list_at = now;
	stream->requests = requests;
}

/*
 * Messages of others wait for the end of a TICK before they are seen, and for the next one's before
 * they are sent. So the work with rows kept back is bounded by its time: slow disks and large rows
 * make a batch smaller. It may take as long as the rest of a TICK does: where that is slow, because
 * of a far server or other programs, a small batch would help nobody.
 */
void stream_worked(struct stream *stream, int64_t now, int64_t took_ms)
{
	int64_t most = most_batch(stream), least = earlier_of(BATCH_ROWS_LEAST, most);
	took_ms = took_ms < 0 ? 0 : took_ms; /* whatever a server says */
	int64_t rest = now - stream->call.issued - took_ms;
	stream->rest_us += ((rest > 0 ? rest : 0) * 1000 - stream->rest_us) / 8;
	int64_t allowed = stream->rest_us / 1000 > BATCH_MS ? stream->rest_us / 1000 : BATCH_MS;
	if (took_ms > allowed)
		stream->batch = stream->batch * allowed / earlier_of(took_ms, 4 * allowed);
	else
		stream->batch += stream->batch / 16 + 1; /* slowly: it may have had little to do */
	if (stream->batch < least)
		stream->batch = least;
	stream->batch = earlier_of(stream->batch, most);
}

void stream_stalled_place(
    struct stream *stream, const char *topic, size_t topic_length, int32_t partition)
{
	record_queue_stalled(stream->queue, topic, topic_length, partition);
	free(stream->after_topic);
	stream->after_topic = xformat("%.*s", (int)topic_length, topic);
	stream->after_partition = partition;
}

/* A call that changes nothing was answered. */
static void call_answered(struct stream *stream, enum stream_call call)
{
	assert(stream->call.tick.call == call);
	(void)call;
	stream->call = (struct call){0};
	stream->failures = 0;
}

void stream_destination(struct stream *stream, const struct stream_destination *destination)
{
	assert(stream->call.tick.call == STREAM_DESTINATIONS);
	record_queue_destination(stream->queue, destination);
	if (stream->call.tick.topics)
		return;
	text_clear(&stream->open_after);
	text_add(&stream->open_after, destination->topic);
}

void stream_closed_destination(struct stream *stream, const char *topic)
{
	assert(stream->call.tick.call == STREAM_CLOSED);
	record_queue_check_topic(stream->queue, topic);
	text_clear(&stream->check_after);
	text_add(&stream->check_after, topic);
}

void stream_closed_end(struct stream *stream, int64_t now, bool last)
{
	assert(stream->call.tick.call == STREAM_CLOSED);
	stream->check_at = now + stream->settings.topic_idle_ms;
	if (last)
		text_clear(&stream->check_after);
	stream->call = (struct call){0};
	stream->failures = 0;
}

void stream_destinations_end(struct stream *stream, bool last)
{
	assert(stream->call.tick.call == STREAM_DESTINATIONS);
	if (stream->call.tick.topics)
		record_queue_load_ended(stream->queue, true);
	else
		stream->open_unknown = !last;
	stream->call = (struct call){0};
	stream->failures = 0;
}

void stream_places_end(struct stream *stream, int64_t rows)
{
	stream->places_unknown = rows >= stream->call.tick.most;
	call_answered(stream, STREAM_PLACES);
}

void stream_looked_up(struct stream *stream, int place, bool itself)
{
	record_queue_looked_up(stream->queue, place, itself);
}

void stream_lookup_end(struct stream *stream)
{
	record_queue_lookup_end(stream->queue);
	call_answered(stream, STREAM_LOOKUP);
	pass_acked(stream); /* rows that are parked already */
}

void stream_digest(struct stream *stream, int64_t digest)
{
	record_queue_digest(stream->queue, digest);
}

void stream_digests_end(struct stream *stream, int64_t rows)
{
	record_queue_digests_end(stream->queue, rows);
	call_answered(stream, STREAM_DIGESTS);
}

static int64_t retry_delay(int failures)
{
	return failures < 5 ? (int64_t)RETRY_FIRST_MS << failures : RETRY_MAX_MS;
}

/* The next TICK has half as much to do, and looks at no row. */
static void lighten_next_tick(struct stream *stream)
{
	if (stream->call.tick.call != STREAM_TICK)
		return;
	stream->halves += stream->halves < MOST_HALVES;
	stream->blind |= stream->call.tick.may_open;
}

void stream_log_failed(struct stream *stream, int64_t now, bool unknown, bool late)
{
	enum stream_call call = stream->call.tick.call;
	int64_t delay = retry_delay(stream->failures++), lease = stream->settings.lease_ms;
	/* a call that the lease depends on is repeated before the lease ends */
	bool urgent = stream->state == STREAM_UNSURE || (writes_row(call) && unknown);
	stream->retry_at = now + earlier_of(delay, urgent ? lease / 16 : lease / 3);
	if (stream->state == STREAM_UNSURE)
		return;
	if (late)
		lighten_next_tick(stream);
	stream->renew_at = stream->state != STREAM_OWNER ? INT64_MAX
			   : call == STREAM_RENEW        ? now + earlier_of(delay, lease / 16)
							 : now;
	if (writes_row(call) && unknown) {
		stream_move(stream, STREAM_UNSURE);
		return;
	}
	if (call == STREAM_TICK)
		record_queue_logged(stream->queue, 0, 0, false);
	if (call == STREAM_CLOSED)
		stream->check_at = now + stream->settings.topic_idle_ms;
	if (call == STREAM_DESTINATIONS) {
		record_queue_load_ended(stream->queue, false);
		stream->load_at = now + delay;
	}
	if (call == STREAM_LOOKUP)
		record_queue_lookup_failed(stream->queue);
	stream->call = (struct call){0};
	stream->next_take = now + delay;
}

/* The other columns of the answer are lost: the row may open a window or list rows. */
static void unsure_written(struct stream *stream, int64_t now, int windows, int64_t listed_tick)
{
	const struct stream_tick *tick = &stream->call.tick;
	stream_move(stream, STREAM_OWNER);
	if (tick->call == STREAM_RENEW) {
		stream_renewed(stream, now, true);
	} else {
		bool opened = windows > stream->window_count - tick->closed;
		stream_ticked(stream, now, opened ? STREAM_PAGES : STREAM_NOTED);
		stream->listed_tick = listed_tick;
		stream->list_at = now;
	}
	/* it may be seen here and be on no standby; the commit of the next row waits for both */
	if (stream->producer == PRODUCER_CONFIRMED)
		stream->producer = PRODUCER_READY;
}

void stream_newest(
    struct stream *stream, int64_t now, int64_t n, int64_t nonce, int windows, int64_t listed_tick)
{
	assert(stream->state == STREAM_UNSURE);
	if (n == stream->n + 1 && nonce == stream->call.tick.new_nonce) {
		unsure_written(stream, now, windows, listed_tick);
	} else if (n == stream->n && nonce == stream->nonce) {
		stream_move(stream, STREAM_OWNER);
		stream->renew_at = now;
		if (stream->call.tick.call == STREAM_TICK)
			record_queue_logged(stream->queue, 0, 0, false);
		stream->call = (struct call){0};
	} else {
		forget_shard(stream, now, STREAM_STANDBY);
	}
}

/* --- the read connection ------------------------------------------------------------------ */

static bool wants_page(const struct stream *stream, int64_t now)
{
	return stream->state == STREAM_OWNER && !stream->stopping &&
	       !record_queue_refused(stream->queue) && has_page_room(stream) &&
	       !lease_is_over(stream, now) && reading_window(stream) &&
	       (!stream->guard.active || poison_guard_reads(&stream->guard));
}

struct stream_page stream_read_call(struct stream *stream, int64_t now)
{
	struct stream_page page = {0};
	if (!wants_page(stream, now) || now < stream->read_at)
		return page;
	const struct window *window = reading_window(stream);
	/* an eighth to spare: rows of much the same size need not be cut off */
	int64_t rows = page_budget(stream) * 7 / 8 / stream->page_cost;
	page.wanted = true;
	page.n = stream->n;
	page.nonce = stream->nonce;
	page.tick = window->tick;
	page.after_id = window->last_id - window->again;
	if (rows > PAGE_ROWS_MAX)
		rows = PAGE_ROWS_MAX;
	if (stream->guard.active && rows > stream->guard.batch)
		rows = stream->guard.batch;
	page.rows = rows < 1 ? 1 : rows;
	page.withheld = poison_guard_convicts(&stream->guard);
	stream->rows = page.withheld ? ROWS_WITHHELD : ROWS_WHOLE;
	page.bytes = page_budget(stream);
	return page;
}

/* False: the row came with a page that failed behind it. */
static bool is_new_row(struct window *window, const struct message *message)
{
	if (message->id != window->last_id) {
		window->same_count = 0;
		window->again = false;
	}
	for (int i = 0; window->again && i < window->same_count; i++)
		if (window->same[i] == message->created_us)
			return false;
	if (window->same_count < SAME_ID)
		window->same[window->same_count++] = message->created_us;
	return true;
}

static void page_is_over(struct window *window)
{
	window->same_count = 0;
	window->again = false;
}

void stream_row(struct stream *stream, const struct message *message)
{
	struct window *window = reading_window(stream);
	if (stream->rows == ROWS_NONE || !is_new_row(window, message)) {
		struct message unwanted = *message;
		message_release(&unwanted);
		return;
	}
	int64_t before = record_queue_bytes(stream->queue);
	record_queue_add(stream->queue, window->tick, window->tick == stream->listed_tick,
	    stream->rows == ROWS_WITHHELD, message);
	stream->guard.read = true;
	window->last_id = message->id;
	/* a moving average, so that a page of larger rows makes the next page shorter */
	stream->page_cost += (record_queue_bytes(stream->queue) - before - stream->page_cost) / 16;
}

static void window_complete(struct stream *stream)
{
	reading_window(stream)->end = record_queue_end(stream->queue);
}

void stream_page_end(struct stream *stream, int64_t now, bool last, int64_t upto_id)
{
	struct window *window = reading_window(stream);
	stream->read_failures = 0;
	if (stream->rows == ROWS_NONE)
		return;
	stream->rows = ROWS_NONE;
	page_is_over(window);
	if (last) {
		window_complete(stream);
		stream->guard.read = true; /* there was none */
		poll_at(stream, now, now);
	} else if (upto_id > window->last_id) {
		window->last_id = upto_id;
	}
}

void stream_read_failed(struct stream *stream, int64_t now)
{
	/* the next page begins behind the rows that came */
	if (stream->rows != ROWS_NONE)
		reading_window(stream)->again = reading_window(stream)->same_count > 0;
	stream->rows = ROWS_NONE;
	stream->read_at = now + retry_delay(stream->read_failures++);
}

void stream_rows_end(struct stream *stream)
{
	if (stream->rows != ROWS_NONE)
		window_complete(stream);
	stream->rows = ROWS_NONE;
}

/* --- Kafka -------------------------------------------------------------------------------- */

void stream_topic(struct stream *stream, const char *topic, int32_t partitions)
{
	record_queue_topic(stream->queue, topic, partitions);
}

void stream_topic_answered(struct stream *stream, const char *topic, int64_t answered_at)
{
	record_queue_topic_answered(
	    stream->queue, topic, answered_at, stream->settings.stall_after_ms);
}

const char *stream_next_topic(
    struct stream *stream, bool unready, bool *ret_ready, int32_t *ret_partitions)
{
	return record_queue_next_topic(stream->queue, unready, ret_ready, ret_partitions);
}

int stream_topics(const struct stream *stream, bool unready)
{
	return record_queue_topics(stream->queue, unready);
}

bool stream_closed_topic(struct stream *stream, char **ret_name)
{
	struct closed_topic *closed = record_queue_closed_topic(stream->queue);
	*ret_name = closed ? xstrdup(closed->name) : NULL;
	free(closed);
	return *ret_name;
}

static bool owns_shard(const struct stream *stream)
{
	return stream->state == STREAM_OWNER || stream->state == STREAM_UNSURE;
}

static bool takes_records(const struct stream *stream, int64_t now)
{
	bool over = stream->settings.transactions && !is_producer_settled(stream) &&
		    (now - stream->transaction_at >= TRANSACTION_MS ||
			stream->transaction_records >= stream->transaction_limit ||
			stream->transaction_bytes + page_budget(stream) > stream->settings.memory);
	return stream->producer == PRODUCER_CONFIRMED && !stream->committing && !over;
}

static void transaction_ends(struct stream *stream, int64_t next_limit)
{
	int64_t most = stream->settings.max_in_flight;
	stream->committing = false;
	stream->transaction_records = stream->transaction_bytes = 0;
	stream->transaction_limit = next_limit < 1 ? 1 : next_limit < most ? next_limit : most;
}

const char stream_partition_stalled[] = "a partition acknowledges nothing for stall_after";

/* The next owner may begin before the answer is here. */
static bool is_releasing(const struct stream *stream)
{
	return stream->call.tick.call == STREAM_TICK && stream->call.tick.lease_ms == 0;
}

bool stream_send(struct stream *stream, int64_t now, struct stream_record *ret_record)
{
	if (!owns_shard(stream) || stream->producer_verdict || lease_is_over(stream, now) ||
	    must_end(stream, now) || is_releasing(stream) || must_leave_epoch(stream) ||
	    stream->rewound || record_queue_recreated(stream->queue) ||
	    record_queue_has_refusals(stream->queue) || !takes_records(stream, now))
		return false;
	record_queue_denials_hurry(stream->queue, stream->guard.active);
	record_queue_denials_step(stream->queue, now);
	if (record_queue_watch_stalls(stream->queue, now, stream->settings.stall_after_ms)) {
		stream->producer_verdict = stream_partition_stalled;
		return false;
	}
	bool idle = record_queue_under_way(stream->queue) == 0;
	if (is_producer_settled(stream))
		stream->transaction_records = stream->transaction_bytes = 0;
	bool sends = record_queue_send(stream->queue, now, stream->stopping, ret_record);
	pass_acked(stream); /* rows that Kafka has already */
	if (sends && idle)
		stream->moved_at = now;
	if (sends)
		stream->transaction_bytes += ret_record->message->bytes;
	if (sends && stream->transaction_records++ == 0)
		stream->transaction_at = now;
	return sends;
}

bool stream_wants_producer(const struct stream *stream, int64_t now)
{
	return stream->state == STREAM_OWNER && !stream->producer_verdict &&
	       !lease_is_over(stream, now) && !stream->stopping;
}

void stream_producer_ready(struct stream *stream)
{
	if (stream->producer == PRODUCER_NEW)
		stream->producer = PRODUCER_READY;
}

bool stream_commits(struct stream *stream)
{
	if (stream->committing || stream->producer_verdict ||
	    !record_queue_written(stream->queue) || record_queue_under_way(stream->queue))
		return false;
	return stream->committing = true;
}

static void count_published(struct stream *stream, int64_t now, int64_t records, int64_t bytes)
{
	stream->moved_at = now;
	stream->published += records;
	stream->published_bytes += bytes;
	pass_acked(stream);
}

void stream_committed(struct stream *stream, int64_t now)
{
	int64_t bytes = record_queue_bytes(stream->queue),
		records = record_queue_written(stream->queue);
	transaction_ends(stream, stream->transaction_limit * 2);
	if (is_forgetting(stream))
		return;
	record_queue_committed(stream->queue);
	count_published(stream, now, records, bytes - record_queue_bytes(stream->queue));
}

const char stream_refusal[] = "a record was refused";
const char stream_denial[] = "a partition takes no records";

static const char *producer_verdict_of(enum stream_delivery delivery)
{
	switch (delivery) {
	case STREAM_REFUSED:
		return stream_refusal;
	case STREAM_DENIED:
	case STREAM_FAILED:
		return stream_denial;
	default:
		return "records must go again";
	}
}

void stream_report(struct stream *stream, int64_t now, uint64_t sequence,
    enum stream_delivery delivery, int64_t offset, const char *error)
{
	bool wants_producer;
	int64_t before = record_queue_bytes(stream->queue);
	if (is_forgetting(stream))
		return;
	record_queue_denials_hurry(stream->queue, stream->guard.active);
	if (!record_queue_report(
		stream->queue, now, sequence, delivery, offset, error, &wants_producer))
		return;
	if (wants_producer)
		stream->producer_verdict = producer_verdict_of(delivery);
	if (delivery != STREAM_WRITTEN)
		return;
	count_published(stream, now, stream->settings.transactions ? 0 : 1,
	    before - record_queue_bytes(stream->queue));
}

const char stream_stalled[] = "no acknowledgement within stall_after";

const char *stream_producer_verdict(const struct stream *stream, int64_t now)
{
	if (stream->producer_verdict)
		return stream->producer_verdict;
	if (!record_queue_under_way(stream->queue))
		return NULL;
	if (lease_is_over(stream, now))
		return "the lease is over";
	if (must_end(stream, now))
		return "there is no time left to wait for its records";
	if (now - stream->moved_at > stream->settings.stall_after_ms)
		return stream_stalled;
	return NULL;
}

bool stream_is_settled(const struct stream *stream)
{
	return is_producer_settled(stream) && !stream->committing;
}

bool stream_awaits_reports(const struct stream *stream)
{
	return record_queue_unreported(stream->queue) > 0;
}

void stream_producer_lost(struct stream *stream)
{
	bool forgets = is_forgetting(stream);
	stream->producer_verdict = NULL;
	stream->producer = stream->settings.transactions ? PRODUCER_NEW : PRODUCER_CONFIRMED;
	stream->call.confirms = false;
	transaction_ends(stream, stream->transaction_records ? stream->transaction_records / 2
							     : stream->transaction_limit);
	if (forgets)
		record_queue_forget(stream->queue);
	else
		record_queue_producer_lost(stream->queue);
}

/* --- tails ---------------------------------------------------------------------------------- */

bool stream_tail_call(struct stream *stream, int64_t now, struct stream_tail *ret_tail)
{
	if (owns_shard(stream))
		record_queue_visit_topics(stream->queue, now);
	/* what a producer that is given up still writes is to be seen */
	if (!owns_shard(stream) || stream->producer_verdict || stream->producer == PRODUCER_NEW ||
	    now < stream->tails_again_at)
		return false;
	/* a tail that is read too early leaves out the records of rows that are parked for it */
	if (stream->places_unknown)
		return false;
	return record_queue_tail_call(stream->queue, now, ret_tail);
}

/*
 * The row of a passed position is noted as published and will not be read again. A failover may
 * have lost ticks of the former epoch: this owner has given their numbers out again, and their
 * surviving rows come in other windows.
 */
static bool is_passed(const struct stream *stream, const struct outbox_position *position)
{
	if (position->epoch != stream->epoch && position->tick > stream->inherited_tick)
		return false;
	return position->tick <= stream->first_tick ||
	       (stream->window_count && position->tick == stream->windows[0].tick &&
		   position->id <= stream->windows[0].acked_id);
}

enum stream_found stream_tail_record(struct stream *stream, const struct stream_question *question,
    int64_t offset, const struct outbox_position *position, const char event_id[16])
{
	bool ours = position->epoch == stream->epoch || position->epoch == stream->former_epoch;
	int64_t newest = stream->first_tick + stream->window_count;
	/* rows of a stalled partition are parked and not published */
	if (ours && is_passed(stream, position) &&
	    !record_queue_partition_keeps_passed(
		stream->queue, question->topic, question->partition))
		return STREAM_FOUND;
	enum record_found found =
	    record_queue_tail_record(stream->queue, question, offset, position->id, event_id);
	if (found == RECORD_FOUND_STALE || found == RECORD_FOUND_ENOUGH)
		return STREAM_FOUND_ENOUGH;
	if (found == RECORD_FOUND_AGAIN)
		return STREAM_FOUND;
	stream->tail_tick = newest;
	stream->tail_open = true;
	if (ours &&
	    position->tick > (found == RECORD_FOUND_FIRST ? stream->inherited_tick : newest)) {
		stream->rewound = true;
		return STREAM_FOUND_UNKNOWN;
	}
	return STREAM_FOUND;
}

int64_t stream_rewinds(const struct stream *stream)
{
	return stream->rewinds;
}

void stream_tail_end(
    struct stream *stream, const struct stream_question *question, int64_t end, bool beyond)
{
	record_queue_tail_end(stream->queue, question, end, beyond);
}

void stream_tail_failed(struct stream *stream, int64_t now, const struct stream_question *question)
{
	if (record_queue_tail_failed(stream->queue, question) && stream->settings.transactions)
		stream->tails_again_at = now + TAILS_AGAIN_MS;
}

/* --- the whole ---------------------------------------------------------------------------- */

bool stream_is_patient(const struct stream *stream)
{
	const struct record_queue *queue = stream->queue;
	return record_queue_under_way(queue) && !record_queue_waits_for_reports(queue) &&
	       !stream->settings.transactions && !record_queue_has_changed_topics(queue) &&
	       has_page_room(stream) && !stream->stopping;
}

/* When the idle log connection has something to carry; INT64_MAX: an event comes first. */
static int64_t log_call_due(struct stream *stream, int64_t now)
{
	const struct stream_settings *settings = &stream->settings;
	if (stream->state == STREAM_UNSURE)
		return stream->retry_at;
	if (stream->call.tick.call != STREAM_NONE)
		return INT64_MAX;
	if (stream->state == STREAM_STANDBY)
		return stream->producer_verdict ? INT64_MAX : stream->next_take;
	if (stream->state != STREAM_OWNER)
		return INT64_MAX;
	if (must_renew_alone(stream, now))
		return stream->renew_at;
	bool asks = wants_places(stream) || record_queue_wants_lookup(stream->queue) ||
		    record_queue_wants_digests(stream->queue);
	int64_t due =
	    must_write(stream, now) || asks ? now : stream->written_at + settings->lease_ms / 3;
	if (stream->open_unknown || record_queue_wants_destinations(stream->queue))
		due = earlier_of(due, stream->load_at);
	if (may_open(stream) && may_list(stream) && stream->list_at >= stream->strange_until)
		due = earlier_of(due, stream->list_at);
	if (may_open(stream))
		due = earlier_of(due, stream->next_poll < stream->strange_until
					  ? stream->strange_until
					  : stream->next_poll);
	if (has_progress(stream))
		due = earlier_of(due,
		    stream->progress_at ? stream->progress_at + settings->ack_interval_ms : now);
	if (stream->guard.active && reading_window(stream))
		due =
		    earlier_of(due, stream->strange_until ? stream->strange_until : now + TURN_MS);
	if (stream->stopping && !record_queue_under_way(stream->queue))
		due = earlier_of(due, stream->stop_by);
	return due < stream->retry_at ? stream->retry_at : due;
}

int64_t stream_wait_offline(const struct stream *stream, int64_t now)
{
	bool reads_later = now < stream->read_at && wants_page(stream, now);
	int64_t due = earlier_of(
	    reads_later ? stream->read_at : INT64_MAX, record_queue_watch_due(stream->queue, now));
	due = earlier_of(due, record_queue_denials_due(stream->queue, now));
	if (!record_queue_under_way(stream->queue) || stream_producer_verdict(stream, now))
		return due;
	due = earlier_of(due, stream->lease_over_at);
	if (stream->stopping)
		due = earlier_of(due, stream->stop_by);
	return earlier_of(due, stream->moved_at + stream->settings.stall_after_ms + 1);
}

int64_t stream_wait(struct stream *stream, int64_t now)
{
	return earlier_of(log_call_due(stream, now), stream_wait_offline(stream, now));
}

void stream_stop(struct stream *stream)
{
	if (stream->stopping)
		return;
	stream->stopping = true;
	stream->stop_by = stream->written_at + stream->settings.lease_ms;
	stream->next_take = 0;
	if (stream->state == STREAM_STANDBY && stream->call.tick.call == STREAM_NONE &&
	    !stream->producer_verdict)
		stream_move(stream, STREAM_RELEASED);
}

/* A drain fills the memory and frees it again: only what stays full counts. */
static bool stays_full(const struct stream *stream, int64_t now)
{
	bool moves = record_queue_under_way(stream->queue) || now - stream->moved_at < STILL_MS ||
		     now - stream->rows_at < STILL_MS;
	return record_queue_is_full(stream->queue) || stream->window_count >= MAX_WINDOWS ||
	       (!has_page_room(stream) && !moves);
}

struct stream_status stream_status(const struct stream *stream, int64_t now)
{
	const struct record_queue *queue = stream->queue;
	const struct record_queue_refusal *refusal = record_queue_refusal(queue);
	const struct message *oldest = record_queue_oldest(queue);
	const char *denied_error = NULL;
	const char *denied_topic = record_queue_denied_topic(queue, &denied_error);
	return (struct stream_status){
	    .state = stream->state,
	    .n = stream->n,
	    .epoch = stream->epoch,
	    .lease_over = owns_shard(stream) && lease_is_over(stream, now),
	    .windows = stream->window_count,
	    .records = record_queue_count(queue),
	    .bytes = record_queue_bytes(queue),
	    .tail_bytes = record_queue_found_bytes(queue),
	    .in_flight = record_queue_in_flight(queue),
	    .full = stays_full(stream, now),
	    .published = stream->published,
	    .published_bytes = stream->published_bytes,
	    .skipped = record_queue_skipped(queue),
	    .parked = record_queue_parked(queue),
	    .scheduled = record_queue_scheduled(queue),
	    .stalls = record_queue_stalls(queue),
	    .oldest_due_us = oldest ? oldest->due_us : 0,
	    .caught_up = stream->state == STREAM_OWNER && stream->found_nothing &&
			 stream->window_count == 0 && !has_progress(stream) &&
			 stream->list_at > now,
	    .deaths = stream->guard.active ? stream->guard.deaths.owners : 0,
	    .refused = record_queue_refused(queue),
	    .refusals = record_queue_refusals(queue),
	    .refused_id = refusal->id,
	    .refused_topic = refusal->topic,
	    .refused_error = refusal->error,
	    .missing_topic = record_queue_missing_topic(queue),
	    .denied_topic = denied_topic,
	    .denied_error = denied_error,
	    .denied = record_queue_denied(queue),
	};
}

uint64_t stream_next_sequence(const struct stream *stream)
{
	return record_queue_end(stream->queue);
}

const struct message *stream_message(const struct stream *stream, uint64_t sequence)
{
	return record_queue_message(stream->queue, sequence);
}

int64_t stream_epoch(const struct stream *stream)
{
	return stream->epoch;
}
