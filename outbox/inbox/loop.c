#include "loop.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "backoff.h"
#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "hands.h"
#include "lanes.h"
#include "letters.h"
#include "logging.h"
#include "share.h"
#include "subscription.h"
#include "text.h"
#include "timers.h"

enum {
	READS = 1000,   /* records in one turn */
	COPY_MS = 100,  /* a copy asks again whether the first one is done */
	AGAIN_MS = 500, /* after a store, a disk or a broker was away */
	FULL_MS = 500,  /* so long nothing is read while memory is full; then partitions rest */
	LONGEST_WAIT_MS = 100,
	CLOSE_MS = 5000,
	FLUSH_MS = 10,     /* between two writes of the stores' logs */
	MISSING_MS = 2000, /* after a topic was deleted, before it is asked for again */
	SHARE = 5,         /* between commits as many times what the last one took, at least */
	LATE_SHARE = 4,    /* the same, between looks for partitions whose leader is away */
	TELL_MS = 10000,   /* between two lines of the log about the same trouble */
};

struct loop {
	const struct inbox_settings *settings;
	pthread_t thread;
	bool runs;
	int wake_fd;
	struct subscription *subscription;
	struct hands *hands;
	struct letters *letters;

	struct share_store common;
	struct share **shares;
	int share_count;
	struct late *late; /* of what was given, what could not be opened yet */
	int late_count;
	int64_t late_at;      /* then it is tried again */
	struct share *recent; /* of the last record; NULL: none */
	int to_read;          /* records in this turn */
	struct item_pool pool;
	struct lanes lanes;
	struct timers timers;
	struct item_list ready;
	int64_t items, bytes; /* that are in memory, of all shares */
	bool closing;         /* partitions go: nothing is begun */
	bool busy;            /* this turn did something */
	int64_t full_since;   /* 0: there is room */
	int64_t now_ms;       /* when this turn began */
	int64_t flush_at, commit_at, told_at;
	const char *told; /* the event */
	uint64_t seed;

	struct outbox_inbox_stats stats;
	int64_t again_at; /* the partitions are to be taken anew; 0: no */

	pthread_mutex_t mutex; /* of what follows */
	bool over, ended;
	struct err why;
	struct outbox_inbox_stats shown;
	char **paused; /* topics; "" stands for all */
	size_t paused_count;
	bool pauses_changed, resumed;
};

/* A partition, as it was given: what is committed. */
struct late {
	char *topic, *text;
	struct subscription_place place;
};

static void tell(struct loop *loop, const char *event, const struct err *err)
{
	int64_t now = clock_ms();
	if (loop->told_at && loop->told == event && now - loop->told_at < TELL_MS)
		return;
	loop->told_at = now;
	loop->told = event;
	log_warn(event, {"group", LOG_TEXT(loop->settings->given.group)},
	    {"error", LOG_TEXT(err->message)});
}

/* It cannot go on. */
static void fail(struct loop *loop, const struct err *err)
{
	pthread_mutex_lock(&loop->mutex);
	loop->why = *err;
	loop->ended = true;
	pthread_mutex_unlock(&loop->mutex);
	log_error("inbox_failed", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"error", LOG_TEXT(err->message)});
}

/* A store that does not answer is asked again; what it has lost is judged by opening it anew. */
static void trouble(struct loop *loop, struct share_store *store, const struct err *err)
{
	store->trouble_until = clock_ms() + AGAIN_MS;
	if (err->kind == ERR_CONFIG)
		fail(loop, err);
	else if (err->kind != ERR_FATAL)
		tell(loop, "inbox_waits", err);
	else if (!loop->again_at) {
		loop->again_at = store->trouble_until;
		log_error("inbox_begins_again", {"group", LOG_TEXT(loop->settings->given.group)},
		    {"error", LOG_TEXT(err->message)});
	}
}

/* --- the way of an item --------------------------------------------------------------------- */

static void go(struct loop *loop, struct item *item);

/* It is done with, and its memory is free. */
static void complete(struct loop *loop, struct item *item)
{
	struct share *share = item->share;
	bool in_lane = !item->known;
	loop->items--;
	loop->bytes -= (int64_t)item->bytes;
	share->items--;
	share->bytes -= (int64_t)item->bytes;
	share->known -= item->known;
	if (in_lane) {
		offsets_finished(&share->offsets, item->public.offset);
		share->changed = true;
		struct item *next = lanes_leave(&loop->lanes, item);
		if (next)
			go(loop, next);
	}
	item_recycle(&loop->pool, item);
}

/* Its id is remembered first, if it is to be. */
static void finish(struct loop *loop, struct item *item)
{
	if (!item->pending) {
		complete(loop, item);
		return;
	}
	item_move(item, ITEM_LOGGING);
	item_list_add(&item->share->logging, item);
}

static void rest(struct loop *loop, struct item *item, int64_t wait_ms)
{
	item_move(item, ITEM_RESTING);
	item->due_ms = clock_ms() + wait_ms;
	timers_add(&loop->timers, item);
}

static void stand(struct loop *loop, struct item *item)
{
	struct share *share = item->share;
	(void)loop;
	item_move(item, ITEM_STANDING);
	share->stops |= STOP_STANDING;
	log_error("inbox_stands_still", {"topic", LOG_TEXT(share->topic)},
	    {"partition", LOG_INT(share->partition)}, {"offset", LOG_INT(item->public.offset)},
	    {"reason", LOG_TEXT(item->reason)},
	    {"consequence", LOG_TEXT("nothing new of the partition is handled, until it is "
				     "resumed or its consumer begins anew")});
}

static void send_dead(struct loop *loop, struct item *item)
{
	const char *topic = loop->settings->given.dead_letters;
	if (!topic) {
		stand(loop, item);
		return;
	}
	log_warn("inbox_dead_letter", {"topic", LOG_TEXT(item->share->topic)},
	    {"partition", LOG_INT(item->share->partition)},
	    {"offset", LOG_INT(item->public.offset)}, {"reason", LOG_TEXT(item->reason)});
	item_move(item, ITEM_SENDING);
	item->fate = FATE_DEAD;
	letters_send(loop->letters, item, topic, LETTER_DEAD);
}

/* In place it has been tried often enough. */
static void send_on(struct loop *loop, struct item *item)
{
	const struct inbox_settings *settings = loop->settings;
	int next = item->share->retry + 1;
	if (next >= settings->retry_count) {
		send_dead(loop, item);
		return;
	}
	const struct outbox_inbox_retry_topic *retry = &settings->given.retry_topics[next];
	item_move(item, ITEM_SENDING);
	letters_send(loop->letters, item, retry->topic, retry->delay_ms);
}

static void ask_again(struct loop *loop, struct item *item)
{
	struct err err;
	if (!share_ask_again(item->share, item, &err)) {
		trouble(loop, item->share->store, &err);
		rest(loop, item, AGAIN_MS);
	} else if (item->fate == FATE_ASK)
		rest(loop, item, COPY_MS);
	else
		go(loop, item);
}

/* Of a retry topic: until it is due nothing more is taken of the partition. -1: it is due. */
static int64_t wait_of(const struct item *item)
{
	const struct outbox_rules_header *header;
	char text[24];
	int64_t at;
	if (item->share->retry < 0 || item->tries > 0)
		return -1;
	header = item_header(item, "outbox-retry-at");
	if (!header || header->length >= sizeof text)
		return -1;
	memcpy(text, header->value, header->length);
	text[header->length] = '\0';
	if (!text_to_int64(text, 0, INT64_MAX, &at))
		return -1;
	return at - clock_wall_us() / 1000;
}

static void handle(struct loop *loop, struct item *item)
{
	int64_t wait = wait_of(item);
	if (wait > 0) {
		item->share->stops |= STOP_DUE;
		rest(loop, item, wait);
		return;
	}
	item_move(item, ITEM_READY);
	item->out = true;
	item_list_add(&loop->ready, item);
}

/* It is the first of its lane. */
static void go(struct loop *loop, struct item *item)
{
	if (loop->closing)
		return;
	switch (item->fate) {
	case FATE_HANDLE:
		handle(loop, item);
		break;
	case FATE_ASK:
		ask_again(loop, item);
		break;
	case FATE_COPY:
		loop->stats.duplicates++;
		finish(loop, item);
		break;
	case FATE_DROP:
		loop->stats.refused++;
		finish(loop, item);
		break;
	case FATE_DEAD:
		send_dead(loop, item);
		break;
	case FATE_STAND:
		stand(loop, item);
	}
}

static void enter(struct loop *loop, struct item *item)
{
	if (item->known) {
		if (item->pending)
			finish(loop, item);
		else
			complete(loop, item);
	} else if (lanes_add(&loop->lanes, item))
		go(loop, item);
	else
		item_move(item, ITEM_QUEUED);
}

/* --- what comes back ------------------------------------------------------------------------ */

static int64_t pause_before(struct loop *loop, const struct item *item)
{
	struct backoff backoff = {.first_ms = loop->settings->given.retry_first_ms,
	    .cap_ms = loop->settings->given.retry_most_ms,
	    .jitter = 0.2,
	    .attempts = item->tries - 1,
	    .seed = loop->seed++};
	int64_t wait = backoff_next_ms(&backoff);
	return item->after_ms > wait ? item->after_ms : wait;
}

static void try_again(struct loop *loop, struct item *item)
{
	int attempts = loop->settings->given.attempts;
	loop->stats.retries++;
	item->tries++;
	if (attempts && item->tries >= attempts) {
		send_on(loop, item);
		return;
	}
	item->public.attempt++;
	rest(loop, item, pause_before(loop, item));
}

static void take_end(struct loop *loop, struct item *item)
{
	int64_t first_ms = loop->settings->given.retry_first_ms;
	item->out = false;
	switch (item->result) {
	case OUTBOX_INBOX_DONE:
		loop->stats.handled++;
		finish(loop, item);
		break;
	case OUTBOX_INBOX_DUPLICATE:
		loop->stats.duplicates++;
		finish(loop, item);
		break;
	case OUTBOX_INBOX_WAIT:
		loop->stats.retries++;
		rest(loop, item, item->after_ms > 0 ? item->after_ms : first_ms);
		break;
	case OUTBOX_INBOX_DEAD:
		send_dead(loop, item);
		break;
	default:
		try_again(loop, item);
	}
}

static void take_ends(struct loop *loop)
{
	struct item_list ended = hands_ended(loop->hands, false);
	for (struct item *item; (item = item_list_take(&ended));) {
		loop->busy = true;
		take_end(loop, item);
	}
}

static void take_letters(struct loop *loop)
{
	struct err why;
	bool refused;
	letters_step(loop->letters, clock_ms());
	for (struct item *item; (item = letters_take(loop->letters, &refused, &why));) {
		loop->busy = true;
		if (refused) {
			free(item->reason);
			item->reason = xformat("its letter is refused: %s", why.message);
			stand(loop, item);
			continue;
		}
		if (item->fate == FATE_DEAD)
			loop->stats.dead_letters++;
		else
			loop->stats.retry_letters++;
		finish(loop, item);
	}
}

static void take_timers(struct loop *loop)
{
	int64_t now = clock_ms();
	for (struct item *item; (item = timers_take(&loop->timers, now));) {
		loop->busy = true;
		item->share->stops &= ~(unsigned)STOP_DUE;
		go(loop, item);
	}
}

static bool is_in_trouble(const struct share *share)
{
	return share->store->trouble_until && clock_ms() < share->store->trouble_until;
}

static void log_done(struct loop *loop)
{
	struct err err;
	for (int i = 0; i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		while (share->logging.first && !is_in_trouble(share)) {
			struct item_list logged = {0};
			if (!share_log(share, &logged, &err)) {
				trouble(loop, share->store, &err);
				break;
			}
			loop->busy = true;
			for (struct item *item; (item = item_list_take(&logged));)
				complete(loop, item);
		}
	}
}

static bool is_logging(const struct loop *loop)
{
	for (int i = 0; i < loop->share_count; i++)
		if (loop->shares[i]->logging.first)
			return true;
	return false;
}

/* --- reading -------------------------------------------------------------------------------- */

static struct share *find_share(const struct loop *loop, const char *topic, int32_t partition)
{
	for (int i = 0; i < loop->share_count; i++)
		if (loop->shares[i]->partition == partition &&
		    text_equal(loop->shares[i]->topic, topic))
			return loop->shares[i];
	return NULL;
}

static bool is_full(const struct loop *loop)
{
	return loop->items >= loop->settings->given.most_messages ||
	       loop->bytes >= loop->settings->given.most_bytes;
}

/*
 * It has its part of the memory. One of several partitions leaves as much as it has, however many
 * do not get on: so that others go on beside them.
 */
static bool has_part(const struct loop *loop, const struct share *share, int64_t parts)
{
	const struct outbox_inbox_settings *given = &loop->settings->given;
	return loop->share_count > 1 &&
	       (share->items * parts >= given->most_messages - loop->items ||
		   share->bytes * parts >= given->most_bytes - loop->bytes);
}

/* Nothing more of it has room, or it waits for its store, or for one that is not finished. */
static bool is_crowded(const struct loop *loop, const struct share *share)
{
	return has_part(loop, share, 1) || share->arrived.first;
}

static void set_stop(struct share *share, enum share_stop stop, bool on)
{
	share->stops = on ? share->stops | stop : share->stops & ~(unsigned)stop;
}

static void apply_stops(struct loop *loop)
{
	struct err err;
	for (int i = 0; i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		const struct subscription_place place = {share->topic, share->partition, 0, NULL};
		bool pause = share->stops != 0;
		if (pause == share->paused)
			continue;
		if (subscription_pause(loop->subscription, &place, pause, &err))
			share->paused = pause;
		else
			tell(loop, "inbox_waits", &err);
	}
}

static bool may_take(const struct loop *loop)
{
	return !is_full(loop) && !(loop->recent && has_part(loop, loop->recent, 1));
}

static void arrive(struct loop *loop, const struct consumer_record *record)
{
	struct share *share = loop->recent;
	if (!share || share->partition != record->partition ||
	    !text_equal(share->topic, record->topic))
		share = loop->recent = find_share(loop, record->topic, record->partition);
	if (!share)
		return;
	struct item *item = item_create(&loop->pool, record);
	item->arrived_ms = loop->now_ms;
	int64_t bytes = (int64_t)item->bytes;
	if (!share_arrive(share, loop->settings, item))
		return;
	loop->items++;
	loop->bytes += bytes;
}

static bool see(void *context, const struct consumer_record *record)
{
	struct loop *loop = context;
	arrive(loop, record);
	return --loop->to_read > 0 && may_take(loop);
}

static void judge_reading(struct loop *loop, bool well, const struct err *err)
{
	if (well)
		return;
	if (err->kind == ERR_CONFIG || err->kind == ERR_FATAL)
		fail(loop, err);
	else
		tell(loop, "inbox_waits", err);
}

static void read_records(struct loop *loop)
{
	struct err err;
	int count;
	loop->to_read = READS;
	judge_reading(loop, subscription_read(loop->subscription, see, loop, &count, &err), &err);
	loop->busy = loop->busy || count > 0;
}

static void read_events(struct loop *loop)
{
	struct err err;
	judge_reading(loop, subscription_step(loop->subscription, &err), &err);
}

/*
 * A partition that rests loses what librdkafka has read ahead of it, so it rests only when its
 * memory was full for long; for a shorter time nothing at all is read. Then other partitions are
 * read on.
 */
static bool may_read(struct loop *loop)
{
	bool full = is_full(loop), stuck = full;
	for (int i = 0; i < loop->share_count; i++)
		stuck |= !loop->shares[i]->paused && is_crowded(loop, loop->shares[i]);
	if (!stuck)
		loop->full_since = 0;
	else if (!loop->full_since)
		loop->full_since = loop->now_ms;
	bool rests = stuck && loop->now_ms - loop->full_since > FULL_MS;
	for (int i = 0; i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		set_stop(share, STOP_FULL, full && rests);
		if (rests && is_crowded(loop, share))
			share->stops |= STOP_ITEMS;
		else if (!has_part(loop, share, 2) && !share->arrived.first)
			share->stops &= ~(unsigned)STOP_ITEMS;
	}
	return !stuck;
}

static void admit(struct loop *loop)
{
	struct err err;
	for (int i = 0; i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		struct item_list admitted = {0};
		if (!share->arrived.first || is_in_trouble(share))
			continue;
		bool well = share_admit(share, loop->settings, &admitted, &err);
		for (struct item *item; (item = item_list_take(&admitted));)
			enter(loop, item);
		if (!well)
			trouble(loop, share->store, &err);
	}
}

/* --- commits -------------------------------------------------------------------------------- */

static void change_all(struct loop *loop)
{
	for (int i = 0; i < loop->share_count; i++)
		loop->shares[i]->changed = true;
}

static void send_commit(
    struct loop *loop, const struct subscription_place *places, int count, bool wait)
{
	struct err err;
	fault_point("inbox_to_commit");
	if (subscription_commit(loop->subscription, places, count, wait, &err))
		loop->stats.commits++;
	else {
		loop->stats.failed_commits++;
		tell(loop, "inbox_not_committed", &err);
		change_all(loop);
	}
	fault_point("inbox_committed");
}

static void commit(struct loop *loop, bool wait)
{
	struct subscription_place *places = xcalloc((size_t)loop->share_count + 1, sizeof *places);
	int count = 0;
	struct err err;
	for (int i = 0; i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		if (!share->changed || share->missing)
			continue;
		if (!share_checkpoint(share, loop->settings, &err)) {
			trouble(loop, share->store, &err);
			continue;
		}
		share->changed = false;
		places[count++] = (struct subscription_place){
		    share->topic, share->partition, share->offsets.done, share->text};
	}
	if (count)
		send_commit(loop, places, count, wait);
	free(places);
}

/* What is committed, once more: so that the coordinator says that the partitions are still ours. */
static void ask_coordinator(struct loop *loop)
{
	struct err err;
	if (!subscription_is_to_ask(loop->subscription))
		return;
	for (int i = 0; i < loop->share_count; i++) {
		const struct share *share = loop->shares[i];
		const struct subscription_place place = {
		    share->topic, share->partition, share->committed, share->text};
		if (share->missing)
			continue;
		if (!subscription_commit(loop->subscription, &place, 1, false, &err))
			tell(loop, "inbox_not_committed", &err);
		return;
	}
}

static void on_not_committed(void *context, const struct err *err)
{
	struct loop *loop = context;
	loop->stats.failed_commits++;
	tell(loop, "inbox_not_committed", err);
	change_all(loop);
}

/* --- figures -------------------------------------------------------------------------------- */

static void add_dedup(const struct outbox_dedup *dedup, struct outbox_inbox_stats *stats)
{
	struct outbox_dedup_stats one;
	if (!dedup)
		return;
	outbox_dedup_stats(dedup, &one);
	stats->filter_hits += one.filter_hits;
	stats->false_hits += one.false_hits;
	stats->dedup_memory_bytes += one.memory_bytes;
	stats->dedup_disk_bytes += one.disk_bytes;
	if (one.observed_rate > stats->observed_rate)
		stats->observed_rate = one.observed_rate;
}

static int64_t oldest_of(const struct loop *loop)
{
	int64_t oldest = INT64_MAX;
	for (const struct item *item = lanes_first(&loop->lanes); item;
	     item = lanes_after(&loop->lanes, item))
		oldest = item->arrived_ms < oldest ? item->arrived_ms : oldest;
	return oldest == INT64_MAX ? 0 : clock_ms() - oldest;
}

static void note_figures(struct loop *loop)
{
	struct outbox_inbox_stats *stats = &loop->stats;
	stats->partitions = loop->share_count + loop->late_count;
	stats->standing = 0;
	stats->filter_hits = stats->false_hits = 0;
	stats->dedup_memory_bytes = stats->dedup_disk_bytes = 0;
	stats->observed_rate = 0;
	for (int i = 0; i < loop->share_count; i++) {
		stats->standing += (loop->shares[i]->stops & (STOP_STANDING | STOP_UNSET)) != 0;
		add_dedup(loop->shares[i]->own.dedup, stats);
	}
	add_dedup(loop->common.dedup, stats);
	stats->oldest_ms = oldest_of(loop);
}

static void show_figures(struct loop *loop)
{
	struct outbox_inbox_stats *stats = &loop->stats;
	stats->messages = (uint64_t)loop->items;
	stats->bytes = (uint64_t)loop->bytes;
	stats->in_hand = (uint64_t)hands_in_hand(loop->hands);
	pthread_mutex_lock(&loop->mutex);
	stats->paused = loop->paused_count > 0;
	loop->shown = *stats;
	pthread_mutex_unlock(&loop->mutex);
}

/* --- pauses --------------------------------------------------------------------------------- */

static bool is_paused(const struct loop *loop, const char *topic)
{
	for (size_t i = 0; i < loop->paused_count; i++)
		if (!loop->paused[i][0] || text_equal(loop->paused[i], topic))
			return true;
	return false;
}

/* What stands still is tried once more when its topic goes on; where there was no offset it is
 * asked for. */
static void wake_standing(struct loop *loop, struct share *share)
{
	if (share->stops & STOP_UNSET && !loop->again_at)
		loop->again_at = clock_ms();
	share->stops &= ~(unsigned)STOP_STANDING;
	for (struct item *item = lanes_first(&loop->lanes); item;
	     item = lanes_after(&loop->lanes, item))
		if (item->share == share && item->state == ITEM_STANDING) {
			item->tries = 0;
			item->public.attempt++;
			rest(loop, item, 0);
		}
}

static void apply_pauses(struct loop *loop)
{
	pthread_mutex_lock(&loop->mutex);
	bool resumed = loop->resumed;
	for (int i = 0; loop->pauses_changed && i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		set_stop(share, STOP_PAUSED, is_paused(loop, share->topic));
	}
	loop->pauses_changed = loop->resumed = false;
	pthread_mutex_unlock(&loop->mutex);
	for (int i = 0; resumed && i < loop->share_count; i++)
		if (!(loop->shares[i]->stops & STOP_PAUSED))
			wake_standing(loop, loop->shares[i]);
}

static void look_at_pauses(struct loop *loop)
{
	pthread_mutex_lock(&loop->mutex);
	loop->pauses_changed = true;
	pthread_mutex_unlock(&loop->mutex);
}

/* --- rebalances ----------------------------------------------------------------------------- */

static void free_late(struct late *late)
{
	free(late->topic);
	free(late->text);
}

static void close_shares(struct loop *loop)
{
	for (int i = 0; i < loop->share_count; i++)
		share_close(loop->shares[i]);
	free(loop->shares);
	loop->shares = NULL;
	loop->recent = NULL;
	loop->share_count = 0;
	for (int i = 0; i < loop->late_count; i++)
		free_late(&loop->late[i]);
	free(loop->late);
	loop->late = NULL;
	loop->late_count = 0;
	outbox_dedup_close(loop->common.dedup);
	loop->common = (struct share_store){0};
}

static bool open_common(struct loop *loop, struct err *err)
{
	const struct inbox_settings *settings = loop->settings;
	struct outbox_error error;
	bool wanted = settings->given.dedup && !settings->given.take && !settings->local &&
		      !settings->by_position;
	if (!wanted)
		return true;
	loop->common.dedup = outbox_dedup_open(settings->given.dedup, &error);
	return loop->common.dedup || err_set(err, (enum err_kind)error.kind, "%s", error.message);
}

static struct share *open_one(struct loop *loop, struct subscription_place *place, struct err *err)
{
	struct share *share = share_open(loop->settings, loop->common.dedup ? &loop->common : NULL,
	    loop->subscription, place, err);
	if (share)
		loop->shares[loop->share_count++] = share;
	return share;
}

/* As when its leader is away: it is read later, and others meanwhile. */
static void put_off(struct loop *loop, struct subscription_place *place)
{
	struct late *late = &loop->late[loop->late_count++];
	late->topic = xstrdup(place->topic);
	late->text = xstrdup(place->text);
	late->place =
	    (struct subscription_place){late->topic, place->partition, place->offset, late->text};
	place->offset = SUBSCRIPTION_NONE;
}

static bool open_shares(
    struct loop *loop, struct subscription_place *places, int count, struct err *err)
{
	loop->shares = xcalloc((size_t)count + 1, sizeof *loop->shares);
	loop->late = xcalloc((size_t)count + 1, sizeof *loop->late);
	loop->late_at = 0;
	if (!open_common(loop, err))
		return false;
	int away = -1; /* the first that is: those behind it come before it, a little later */
	for (int i = 0; i < count; i++) {
		struct subscription_place place = places[i];
		if (away >= 0)
			put_off(loop, &places[i]);
		else if (open_one(loop, &place, err))
			places[i].offset = place.offset;
		else if (err->kind == ERR_CONFIG || err->kind == ERR_FATAL)
			return false;
		else
			away = i;
	}
	if (away < 0)
		return true;
	tell(loop, "inbox_waits", err);
	put_off(loop, &places[away]);
	return true;
}

/* When they are tried again: most of the time is for the others. */
static void pace_late(struct loop *loop, int64_t began_ms)
{
	int64_t now = clock_ms(), took = LATE_SHARE * (now - began_ms);
	loop->late_at = now + (took > AGAIN_MS ? took : AGAIN_MS);
}

/* The first of them; it is the last one then, if it could not be. */
static bool open_late(struct loop *loop, struct err *err)
{
	struct late late = loop->late[0];
	struct subscription_place place = late.place;
	bool open = open_one(loop, &place, err);
	loop->late_count--;
	memmove(loop->late, loop->late + 1, (size_t)loop->late_count * sizeof *loop->late);
	if (open) {
		free_late(&late);
		look_at_pauses(loop);
	} else
		loop->late[loop->late_count++] = late;
	return open;
}

static bool on_assigned(
    void *context, struct subscription_place *places, int count, struct err *err)
{
	struct loop *loop = context;
	close_shares(loop);
	if (!open_shares(loop, places, count, err)) {
		close_shares(loop);
		return false;
	}
	loop->stats.rebalances++;
	look_at_pauses(loop);
	log_info("inbox_assigned", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"partitions", LOG_INT(count)});
	return true;
}

/* What is in hand ends, and what ended is recorded; nothing is begun. */
static void drain(struct loop *loop, int64_t until_ms)
{
	struct pollfd fd = {loop->wake_fd, POLLIN, 0};
	for (;;) {
		uint64_t count;
		bool in_hand = hands_in_hand(loop->hands) > 0; /* else all that ended is there */
		take_ends(loop);
		take_letters(loop);
		log_done(loop);
		if (clock_ms() >= until_ms ||
		    (!in_hand && letters_count(loop->letters) == 0 && !is_logging(loop)))
			return;
		struct item_list ended = hands_ended(loop->hands, true);
		for (struct item *item; (item = item_list_take(&ended));)
			take_end(loop, item);
		poll(&fd, 1, 20);
		(void)!read(loop->wake_fd, &count, sizeof count);
	}
}

/* Everything that is in a lane, but for what the hands have and what is to be logged. */
static void forget_lanes(struct loop *loop)
{
	struct item *next, *behind;
	for (struct item *first = lanes_clear(&loop->lanes); first; first = next) {
		next = first->chain;
		for (struct item *item = first; item; item = behind) {
			behind = item->behind;
			if (!item->out && item->state != ITEM_LOGGING)
				item_destroy(item);
		}
	}
}

static void free_list(struct item_list *list)
{
	for (struct item *item; (item = item_list_take(list));)
		item_destroy(item);
}

static void take_back(struct item_list *list)
{
	for (struct item *item; (item = item_list_take(list));)
		item->out = false;
}

static void abandon(struct loop *loop)
{
	loop->stats.abandoned += (uint64_t)hands_abandon(loop->hands);
}

/* Forgets all that is in memory; what the hands have is theirs until it is finished. */
static void forget(struct loop *loop)
{
	letters_drop(loop->letters);
	timers_finish(&loop->timers);
	forget_lanes(loop);
	abandon(loop);
	struct item_list ended = hands_ended(loop->hands, false);
	free_list(&ended);
	hands_forget(loop->hands);
	close_shares(loop);
	loop->items = loop->bytes = 0;
}

static void let_go(struct loop *loop, bool lost)
{
	struct item_list ready = hands_withdraw(loop->hands);
	loop->closing = true;
	take_back(&ready);
	take_back(&loop->ready);
	hands_hold_until(loop->hands, 0);
	drain(loop, clock_ms() + (lost ? 0 : loop->settings->given.drain_ms));
	abandon(loop);
	take_ends(loop); /* no more come after that */
	log_done(loop);
	if (!lost)
		commit(loop, true);
	forget(loop);
	loop->closing = false;
}

static void on_revoked(void *context, bool lost)
{
	struct loop *loop = context;
	log_info("inbox_revoked", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"partitions", LOG_INT(loop->share_count)}, {"lost", LOG_INT(lost)});
	let_go(loop, lost);
}

/* All partitions are taken anew, from what is committed. */
static void begin_again(struct loop *loop)
{
	struct err err;
	if (!loop->again_at || clock_ms() < loop->again_at)
		return;
	loop->again_at = 0;
	let_go(loop, false);
	if (!subscription_again(loop->subscription, &err))
		fail(loop, &err);
}

/* --- offsets and topics that are not there --------------------------------------------------- */

/* Records were deleted before they were read: a gap. */
static void skip_deleted(struct share *share, int64_t to)
{
	share->read = to;
	if (!offsets_reaches(&share->offsets, to)) /* the record there waits until it is */
		return;
	offsets_skip(&share->offsets, to);
	share->changed = true;
}

/* Its log is another one: what is committed is set, so that it holds. Of the text only the mark of
 * `sequence` goes along. */
static bool begin_anew(struct loop *loop, struct share *share, int64_t at, struct err *err)
{
	char text[COMMIT_TEXT_SIZE];
	owned_text char *copy = xstrdup(share->text);
	const char *finished, *mark;
	struct offsets none;
	(void)commit_text_parse(copy, &finished, &mark);
	offsets_init(&none, at, "");
	commit_text_write(&none, mark, text);
	const struct subscription_place place = {share->topic, share->partition, at, text};
	share->missing = true;
	loop->again_at = clock_ms();
	return subscription_commit(loop->subscription, &place, 1, true, err);
}

/* To where the settings say. */
static bool move_on(struct loop *loop, struct share *share, struct err *err)
{
	int64_t low, high;
	if (!subscription_range(
		loop->subscription, share->topic, share->partition, &low, &high, err))
		return false;
	int64_t at = loop->settings->given.start == OUTBOX_INBOX_EARLIEST ? low : high;
	share->gone = false;
	if (share->read >= low)
		return begin_anew(loop, share, at, err);
	skip_deleted(share, at);
	return true;
}

/* Of all shares, from where each is. */
static bool begin_reading(struct loop *loop, struct err *err)
{
	struct subscription_place *places = xcalloc((size_t)loop->share_count + 1, sizeof *places);
	for (int i = 0; i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		share->paused = false;
		places[i] =
		    (struct subscription_place){share->topic, share->partition, share->read, NULL};
	}
	bool begun = subscription_begin(loop->subscription, places, loop->share_count, err);
	free(places);
	return begun;
}

static void on_out_of_range(void *context, const char *topic, int32_t partition)
{
	struct loop *loop = context;
	struct share *share = find_share(loop, topic, partition);
	if (!share || share->missing || share->gone)
		return;
	share_tell_gone(share, share->read);
	if (loop->settings->given.start == OUTBOX_INBOX_STAND_STILL)
		share_stand_unset(share);
	else
		share->gone = true;
}

/* What could not be begun where it was given, or has to go on elsewhere. */
static void see_to_late(struct loop *loop)
{
	struct err err;
	int64_t began_ms = clock_ms();
	bool well = true, moved = false;
	if (began_ms < loop->late_at || loop->again_at)
		return;
	for (int i = 0; well && i < loop->share_count; i++)
		if (loop->shares[i]->gone) {
			well = move_on(loop, loop->shares[i], &err);
			moved |= well;
		}
	while (well && loop->late_count) {
		well = open_late(loop, &err);
		moved |= well;
	}
	if (!well) {
		judge_reading(loop, false, &err);
		pace_late(loop, began_ms);
	}
	if (moved && !loop->again_at && !begin_reading(loop, &err))
		loop->again_at = clock_ms() + AGAIN_MS;
}

/* Deleted under way: what is committed of it is gone with it, and must not come back. */
static void on_missing(void *context, const char *topic, int32_t partition)
{
	struct loop *loop = context;
	struct share *share = find_share(loop, topic, partition);
	struct err err;
	err_set(&err, ERR_RETRY, "topic %s does not exist: make it, or leave it out", topic);
	if (!share)
		tell(loop, "inbox_waits", &err);
	if (!share || share->missing)
		return;
	log_error("inbox_topic_missing", {"topic", LOG_TEXT(topic)},
	    {"partition", LOG_INT(partition)}, {"offset", LOG_INT(share->offsets.done)},
	    {"consequence",
		LOG_TEXT("handlers end what they have of it; when it is made anew, it is "
			 "read as the settings say for a group without an offset")});
	share->missing = true;
	loop->again_at = clock_ms() + MISSING_MS;
}

/* --- the thread ----------------------------------------------------------------------------- */

static void empty(int fd)
{
	uint64_t count;
	(void)!read(fd, &count, sizeof count);
}

static int64_t next_time(const struct loop *loop, int64_t letters_at)
{
	int64_t at = timers_next(&loop->timers);
	at = loop->commit_at < at ? loop->commit_at : at;
	at = letters_at < at ? letters_at : at;
	int64_t wait = at - clock_ms();
	return wait < 0 ? 0 : wait > LONGEST_WAIT_MS ? LONGEST_WAIT_MS : wait;
}

static void wait_for_work(struct loop *loop)
{
	struct pollfd fds[] = {{subscription_fd(loop->subscription), POLLIN, 0},
	    {loop->wake_fd, POLLIN, 0}, {letters_fd(loop->letters), POLLIN, 0}};
	struct item_list ended = hands_ended(loop->hands, true);
	bool some = ended.first;
	for (struct item *item; (item = item_list_take(&ended));)
		take_end(loop, item);
	if (some)
		return;
	poll(fds, 3, (int)next_time(loop, letters_step(loop->letters, clock_ms())));
	empty(loop->wake_fd);
	empty(fds[0].fd);
}

/* So that a killed process repeats the effects of so short a time only. */
static void flush_in_time(struct loop *loop)
{
	struct err err;
	if (loop->now_ms < loop->flush_at)
		return;
	loop->flush_at = loop->now_ms + FLUSH_MS;
	for (int i = 0; i < loop->share_count; i++)
		if (!is_in_trouble(loop->shares[i]) && !share_flush(loop->shares[i], &err))
			trouble(loop, loop->shares[i]->store, &err);
}

static void commit_in_time(struct loop *loop)
{
	int64_t begin = clock_ms();
	if (begin < loop->commit_at)
		return;
	commit(loop, false);
	note_figures(loop);
	int64_t end = clock_ms(), took = end - begin;
	int64_t every = loop->settings->given.commit_every_ms;
	loop->commit_at = end + (every > SHARE * took ? every : SHARE * took);
}

static void turn(struct loop *loop)
{
	loop->busy = false;
	loop->now_ms = clock_ms();
	take_ends(loop);
	take_letters(loop);
	take_timers(loop);
	apply_pauses(loop);
	read_events(loop);
	if (may_read(loop))
		read_records(loop);
	begin_again(loop);
	see_to_late(loop);
	admit(loop);
	log_done(loop);
	apply_stops(loop);
	ask_coordinator(loop);
	hands_hold_until(loop->hands, subscription_held_until(loop->subscription));
	if (loop->ready.first)
		hands_offer(loop->hands, &loop->ready);
	flush_in_time(loop);
	commit_in_time(loop);
	show_figures(loop);
	if (!loop->busy)
		wait_for_work(loop);
}

static bool is_over(struct loop *loop)
{
	pthread_mutex_lock(&loop->mutex);
	bool over = loop->over || loop->ended;
	pthread_mutex_unlock(&loop->mutex);
	return over;
}

static void *run(void *context)
{
	struct loop *loop = context;
	pthread_setname_np(pthread_self(), "inbox");
	while (!is_over(loop))
		turn(loop);
	subscription_close(loop->subscription);
	forget(loop);
	show_figures(loop);
	return NULL;
}

/* --- life ----------------------------------------------------------------------------------- */

static void destroy(struct loop *loop)
{
	hands_destroy(loop->hands);
	letters_destroy(loop->letters);
	subscription_destroy(loop->subscription, CLOSE_MS);
	if (loop->wake_fd >= 0)
		close(loop->wake_fd);
	for (size_t i = 0; i < loop->paused_count; i++)
		free(loop->paused[i]);
	free(loop->paused);
	lanes_finish(&loop->lanes);
	item_pool_finish(&loop->pool);
	pthread_mutex_destroy(&loop->mutex);
	free(loop);
}

static bool make_parts(struct loop *loop, struct outbox_inbox *inbox, struct err *err)
{
	const struct outbox_inbox_settings *given = &loop->settings->given;
	const struct hands_settings hands = {.handle = given->handle,
	    .context = given->context,
	    .inbox = inbox,
	    .threads = given->threads,
	    .most = given->concurrency,
	    .batch = given->batch,
	    .wake_fd = loop->wake_fd};
	const struct subscription_settings settings = {
	    &loop->settings->kafka, given->group, given->topics};
	const struct subscription_callbacks callbacks = {.assigned = on_assigned,
	    .revoked = on_revoked,
	    .out_of_range = on_out_of_range,
	    .missing = on_missing,
	    .not_committed = on_not_committed,
	    .context = loop};
	loop->letters = letters_create(&loop->settings->kafka, given->group);
	loop->hands = hands_create(&hands, err);
	loop->subscription = loop->hands ? subscription_create(&settings, &callbacks, err) : NULL;
	return loop->subscription;
}

struct loop *loop_create(
    const struct inbox_settings *settings, struct outbox_inbox *inbox, struct err *err)
{
	struct loop *loop = xcalloc(1, sizeof *loop);
	loop->settings = settings;
	loop->seed = (uint64_t)clock_random();
	lanes_init(&loop->lanes, settings->given.most_messages);
	pthread_mutex_init(&loop->mutex, NULL);
	loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->wake_fd < 0)
		err_set(err, ERR_RETRY, "no eventfd for an inbox: %s", strerror(errno));
	else if (make_parts(loop, inbox, err))
		return loop;
	destroy(loop);
	return NULL;
}

bool loop_start(struct loop *loop, struct err *err)
{
	loop->runs = pthread_create(&loop->thread, NULL, run, loop) == 0;
	return loop->runs || err_set(err, ERR_RETRY, "no thread for an inbox");
}

static void wake(struct loop *loop)
{
	(void)!write(loop->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

void loop_destroy(struct loop *loop)
{
	if (!loop)
		return;
	pthread_mutex_lock(&loop->mutex);
	loop->over = true;
	pthread_mutex_unlock(&loop->mutex);
	wake(loop);
	if (loop->runs)
		pthread_join(loop->thread, NULL);
	destroy(loop);
}

bool loop_finish(
    struct loop *loop, const struct outbox_inbox_end *ends, size_t count, struct err *err)
{
	return hands_finish(loop->hands, ends, count, err);
}

bool loop_holds(struct loop *loop, uint64_t ticket)
{
	return hands_holds(loop->hands, ticket);
}

/* The list has a topic once; "" takes all others with it. */
static void set_paused(struct loop *loop, const char *topic, bool pause)
{
	size_t kept = 0;
	for (size_t i = 0; i < loop->paused_count; i++)
		if (!topic[0] || text_equal(loop->paused[i], topic))
			free(loop->paused[i]);
		else
			loop->paused[kept++] = loop->paused[i];
	loop->paused = xrealloc(loop->paused, (kept + 1) * sizeof *loop->paused);
	if (pause)
		loop->paused[kept++] = xstrdup(topic);
	loop->paused_count = kept;
	loop->pauses_changed = true;
	loop->resumed |= !pause;
}

void loop_pause(struct loop *loop, const char *topic, bool pause)
{
	pthread_mutex_lock(&loop->mutex);
	set_paused(loop, topic ? topic : "", pause);
	pthread_mutex_unlock(&loop->mutex);
	wake(loop);
}

void loop_stats(struct loop *loop, struct outbox_inbox_stats *ret_stats)
{
	pthread_mutex_lock(&loop->mutex);
	*ret_stats = loop->shown;
	pthread_mutex_unlock(&loop->mutex);
}

bool loop_works(struct loop *loop, struct err *err)
{
	pthread_mutex_lock(&loop->mutex);
	bool works = !loop->ended;
	if (!works && err)
		*err = loop->why;
	pthread_mutex_unlock(&loop->mutex);
	return works;
}
