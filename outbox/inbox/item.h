#pragma once
/*
 * A message in memory: a copy of its record, so that no memory of librdkafka is held while the
 * message waits, and the message's state.
 */
#include "claims.h"
#include "consumer.h"
#include "inbox.h"
#include "states.h"

/*
 * The life of a message, from its arrival to its end. The table is in item.c, and item_move checks
 * each move in test builds.
 */
enum item_state {
	ITEM_ARRIVED,
	ITEM_QUEUED,
	ITEM_CLAIMING,
	ITEM_READY,
	ITEM_IN_PROGRESS,
	ITEM_ENDED,
	ITEM_RESTING,
	ITEM_SENDING,
	ITEM_BLOCKED,
	ITEM_LOGGING,
	ITEM_STATES
};
extern const struct state_table item_states;

/* The fate of a message that is the first of its key queue. */
enum item_fate {
	FATE_HANDLE,
	FATE_ASK,  /* another message with its id is being handled: ask again later */
	FATE_COPY, /* a message with its id is done */
	FATE_DROP, /* a rule drops it */
	FATE_DEAD,
	FATE_BLOCK, /* its fate is unknown: its partition is blocked */
};

struct inbox_partition;
struct claimer;

/*
 * An item passes from the loop to a handler on another core and back, and each cache line that one
 * of them touches moves with it. So the fields are in the order of who uses them: the first two
 * lines of 64 bytes are for the handler, the third one is for both, and the fourth is for the loop.
 * The rest is used only when a message is not simply handled and done.
 */
struct item {
	struct outbox_inbox_message public; /* first */
	struct item *link;                  /* the next one in the list that belongs to its state */

	struct inbox_partition *assigned; /* NULL: its partition was revoked */
	enum item_state state;
	enum outbox_inbox_result result; /* how it ended */
	char *reason;                    /* why it ended so, or will */
	/* The claim on its id, from when it was granted until claimer_release; number 0: none. */
	struct outbox_claim claim;
	char *owned_id, *owned_leg; /* id and leg, if they are not part of the record */
	int64_t after_ms;           /* when it may be tried again: its handler says so */

	/* its key queue: the messages of a key, in order; key_queues.h */
	uint64_t key_hash;
	struct item *behind, *last, *chain; /* the latter two are used only in the first message */
	size_t bytes;
	/*
	 * The id by which the store knows it: public.id, and for a redelivered message also its
	 * leg, so that it does not count as a copy of the original message. NULL: none.
	 */
	const void *id;
	uint32_t id_length;
	enum item_fate fate;
	bool out : 1;         /* the worker pool or the claimer has it; a field of the loop */
	bool met : 1;         /* it was taken from its partition, and waits for the store */
	bool checked : 1;     /* the store was queried */
	bool pending : 1;     /* its id is pending in the store */
	bool judged : 1;      /* the rules were queried */
	bool handled : 1;     /* it ended in a way that is reported (settings.report) */
	bool known : 1;       /* it was finished before, and only its id must be remembered */
	bool redelivered : 1; /* it has the header outbox-group */

	int64_t arrived_ms, due_ms; /* clock_ms */
	struct claimer *claimer;    /* of the claim */
	int tries;                  /* here */
	int refusals;               /* how often its claim was refused since it was last granted */
};

/* Memory of freed items, by size, for new items. Owned by one thread. */
enum { POOL_STEP = 128, POOL_CLASSES = 64, POOL_BYTES = 4 << 20 };
struct item_pool {
	struct item *firsts[POOL_CLASSES];
	size_t bytes;
};
void item_pool_finish(struct item_pool *pool);

/* Copies the record. pool NULL: no pool. */
struct item *item_create(struct item_pool *pool, const struct consumer_record *record);
/*
 * Removes the headers in which redelivery writes where a message was first, how often it was tried
 * and why it failed. Only in retry and dead-letter topics are these headers from the relay: in
 * another topic they are from the producer, who may write anything. outbox-group and outbox-leg
 * stay, because a dead letter that is sent back has them, and they refer to no other record.
 */
void item_drop_claims(struct item *item);
void item_destroy(struct item *item); /* may be called from any thread */
void item_recycle(struct item_pool *pool, struct item *item);

/* The table must allow the move. */
void item_move(struct item *item, enum item_state state);

/* The last header of this name; NULL: none, or one without a value. */
const struct outbox_rules_header *item_header(const struct item *item, const char *name);

/* The form in which the store knows an id: the id, or its digest if it is too long. The result may
 * be ret_digest. */
enum { ITEM_DIGEST = 33 };
const void *item_short_id(
    const void *id, size_t length, char ret_digest[ITEM_DIGEST], size_t *ret_length);

struct item_list {
	struct item *first, *last;
	size_t count;
};
void item_list_add(struct item_list *list, struct item *item);
struct item *item_list_take(struct item_list *list); /* the first; NULL: none */
/* Appends the other list, which is empty afterwards. */
void item_list_join(struct item_list *list, struct item_list *other);
