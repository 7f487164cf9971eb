#include "inbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "inbox_settings.h"
#include "item.h"
#include "loop.h"
#include "outbox_error.h"
#include "text.h"

enum { MOST_TAKEN = 1000 };

/* Postgres stores for outbox_inbox_take. Only one thread at a time may use a store. */
struct taker {
	struct taker *next;
	struct outbox_dedup *dedup;
};

struct outbox_inbox {
	struct inbox_settings *settings;
	struct loop *loop;
	pthread_mutex_t mutex;
	struct taker *takers; /* stores that no thread uses */
};

static bool fail_inbox(struct outbox_error *error, const struct err *err)
{
	outbox_error_of(err, error);
	return false;
}

/* --- life ----------------------------------------------------------------------------------- */

static void destroy_inbox(struct outbox_inbox *inbox)
{
	struct taker *next;
	for (struct taker *taker = inbox->takers; taker; taker = next) {
		next = taker->next;
		outbox_dedup_close(taker->dedup);
		free(taker);
	}
	inbox_settings_destroy(inbox->settings);
	pthread_mutex_destroy(&inbox->mutex);
	free(inbox);
}

struct outbox_inbox *outbox_inbox_open(
    const struct outbox_inbox_settings *settings, struct outbox_error *error)
{
	struct outbox_inbox *inbox = xcalloc(1, sizeof *inbox);
	struct err err;
	pthread_mutex_init(&inbox->mutex, NULL);
	inbox->settings = inbox_settings_create(settings, &err);
	inbox->loop = inbox->settings ? loop_create(inbox->settings, inbox, &err) : NULL;
	if (inbox->loop && loop_start(inbox->loop, &err))
		return inbox;
	outbox_inbox_close(inbox);
	fail_inbox(error, &err);
	return NULL;
}

void outbox_inbox_close(struct outbox_inbox *inbox)
{
	if (!inbox)
		return;
	loop_destroy(inbox->loop);
	destroy_inbox(inbox);
}

bool outbox_inbox_works(struct outbox_inbox *inbox, struct outbox_error *error)
{
	struct err err;
	return loop_works(inbox->loop, &err) || fail_inbox(error, &err);
}

bool outbox_inbox_change_rules(
    struct outbox_inbox *inbox, const char *const *rules, struct outbox_error *error)
{
	struct err err;

	if (!inbox_settings_check_rules(inbox->settings, rules, &err))
		return fail_inbox(error, &err);
	loop_change_rules(inbox->loop, rules);
	return true;
}

/* --- what handlers call --------------------------------------------------------------------- */

bool outbox_inbox_finish(struct outbox_inbox *inbox, const struct outbox_inbox_end *ends,
    size_t count, struct outbox_error *error)
{
	struct err err;
	return loop_finish(inbox->loop, ends, count, &err) || fail_inbox(error, &err);
}

bool outbox_inbox_holds(struct outbox_inbox *inbox, uint64_t ticket)
{
	return loop_holds(inbox->loop, ticket);
}

static struct taker *borrow_taker(struct outbox_inbox *inbox, struct outbox_error *error)
{
	pthread_mutex_lock(&inbox->mutex);
	struct taker *taker = inbox->takers;
	if (taker)
		inbox->takers = taker->next;
	pthread_mutex_unlock(&inbox->mutex);
	if (taker)
		return taker;

	struct outbox_dedup *dedup = outbox_dedup_open(inbox->settings->given.dedup, error);
	if (!dedup)
		return NULL;

	taker = xcalloc(1, sizeof *taker);
	taker->dedup = dedup;
	return taker;
}

static void give_back_taker(struct outbox_inbox *inbox, struct taker *taker)
{
	pthread_mutex_lock(&inbox->mutex);
	taker->next = inbox->takers;
	inbox->takers = taker;
	pthread_mutex_unlock(&inbox->mutex);
}

/* The messages that one transaction takes. */
struct taking {
	struct outbox_dedup_id ids[MOST_TAKEN];
	char digests[MOST_TAKEN][ITEM_DIGEST];
	enum outbox_dedup_state states[MOST_TAKEN];
	size_t places[MOST_TAKEN]; /* for each id, the number of its message */
	size_t count;
};

/* Takes the messages that have an id. */
static void collect_ids(
    struct taking *taking, const struct outbox_inbox_message *const *messages, size_t count)
{
	taking->count = 0;
	for (size_t i = 0; i < count; i++) {
		const struct outbox_inbox_message *message = messages[i];
		size_t place = taking->count;
		struct outbox_dedup_id *id = &taking->ids[place];
		/* a message without an id is never a copy */
		if (!message->id)
			continue;
		*id = (struct outbox_dedup_id){
		    .time_ms = message->time_ms, .offset = message->offset};
		id->id = item_short_id(
		    message->id, message->id_length, taking->digests[place], &id->length);
		taking->places[taking->count++] = i;
	}
}

static bool check_take(const struct outbox_inbox *inbox, size_t count, struct err *err)
{
	if (!inbox->settings->given.take)
		return err_set(err, ERR_CONFIG,
		    "ids are taken by the inbox itself: open it with take, and with a line of "
		    "postgres");
	return count <= MOST_TAKEN ||
	       err_set(err, ERR_REJECT, "%zu messages in a transaction: at most are %d", count,
		   MOST_TAKEN);
}

bool outbox_inbox_take(struct outbox_inbox *inbox, struct pg_conn *connection,
    const struct outbox_inbox_message *const *messages, size_t count,
    enum outbox_dedup_state *ret_states, struct outbox_error *error)
{
	struct taking taking;
	struct err err;

	if (!check_take(inbox, count, &err))
		return fail_inbox(error, &err);

	struct taker *taker = borrow_taker(inbox, error);
	if (!taker)
		return false;

	collect_ids(&taking, messages, count);
	bool taken = taking.count == 0 || outbox_dedup_take(taker->dedup, connection, taking.ids,
					      taking.count, taking.states, error);
	give_back_taker(inbox, taker);
	/* messages without an id are new */
	for (size_t i = 0; taken && i < count; i++)
		ret_states[i] = OUTBOX_DEDUP_NEW;
	for (size_t i = 0; taken && i < taking.count; i++)
		ret_states[taking.places[i]] = taking.states[i];
	return taken;
}

/* --- the rest ------------------------------------------------------------------------------- */

void outbox_inbox_pause(struct outbox_inbox *inbox, const char *topic, bool pause)
{
	loop_pause(inbox->loop, topic, pause);
}

void outbox_inbox_stats(struct outbox_inbox *inbox, struct outbox_inbox_stats *ret_stats)
{
	loop_stats(inbox->loop, ret_stats);
}
