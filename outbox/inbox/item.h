#pragma once
/*
 * A message in memory: a copy of its record, so that nothing of librdkafka's is held while it
 * waits, and where it stands on its way.
 */
#include "consumer.h"
#include "inbox.h"
#include "states.h"

/*
 * From its arrival to its end. The table is in item.c, and item_move checks each move in test
 * builds.
 */
enum item_state {
	ITEM_ARRIVED,
	ITEM_QUEUED,
	ITEM_READY,
	ITEM_IN_PROGRESS,
	ITEM_ENDED,
	ITEM_RESTING,
	ITEM_SENDING,
	ITEM_STANDING,
	ITEM_LOGGING,
	ITEM_STATES
};
extern const struct state_table item_states;

/* The fate of a message that is the first of its key queue. */
enum item_fate {
	FATE_HANDLE,
	FATE_ASK,  /* another one with its id is being handled: once more, then */
	FATE_COPY, /* it is done */
	FATE_DROP, /* a rule says so */
	FATE_DEAD,
	FATE_STAND, /* nobody knows */
};

struct inbox_partition;

/* Fields that the worker pool changes stand together, and so do those of the loop alone. */
struct item {
	struct outbox_inbox_message public; /* first */

	struct item *link;                /* the next one in the list that its state says */
	struct inbox_partition *assigned; /* NULL: its partition was taken away */
	enum item_state state;
	enum outbox_inbox_result result; /* how it ended */
	char *reason;                    /* why it did so, or is to */
	int64_t after_ms;

	/* its key queue: the messages of a key, in order; key_queues.h */
	uint64_t key_hash;
	struct item *behind, *last, *chain; /* the latter two: of the first one only */

	size_t bytes;
	int64_t arrived_ms, due_ms; /* clock_ms */
	int tries;                  /* here */
	bool out;                   /* the worker pool has it; a field of the loop */
	/*
	 * By which the store knows it: public.id, and of a redelivered one the way it took, so that
	 * it is not taken for a copy of its message. NULL: none.
	 */
	const void *id;
	size_t id_length;
	char *owned_id, *owned_leg; /* the two, where they are no part of the record */
	enum item_fate fate;
	bool met;         /* it was taken of its partition, and waits for the store */
	bool checked;     /* the store was asked */
	bool pending;     /* its id is pending in the store */
	bool judged;      /* the rules were asked */
	bool known;       /* it was finished before, and only its id is to be remembered */
	bool redelivered; /* it has the header outbox-group */
};

/* Memory of items that were, by its size, for those that come. Owned by one thread. */
enum { POOL_STEP = 128, POOL_CLASSES = 64, POOL_BYTES = 4 << 20 };
struct item_pool {
	struct item *firsts[POOL_CLASSES];
	size_t bytes;
};
void item_pool_finish(struct item_pool *pool);

/* The record is copied. pool: NULL: none. */
struct item *item_create(struct item_pool *pool, const struct consumer_record *record);
/*
 * Removes the headers with which redelivery says where a message was first, how often it was tried
 * and why it failed. They are the relay's own only in retry and dead-letter topics: a record of
 * another topic has them from its producer, who may write anything. outbox-group and outbox-leg
 * stay, since a dead letter that goes back has them, and they say nothing of another record.
 */
void item_drop_claims(struct item *item);
void item_destroy(struct item *item); /* by any thread */
void item_recycle(struct item_pool *pool, struct item *item);

/* The move must be one of the table. */
void item_move(struct item *item, enum item_state state);

/* The last header of this name; NULL: none, or one without a value. */
const struct outbox_rules_header *item_header(const struct item *item, const char *name);

/* By what the store knows an id: itself, or, of one that is too long, its digest. ret_digest: may
 * be what is returned. */
enum { ITEM_DIGEST = 33 };
const void *item_short_id(
    const void *id, size_t length, char ret_digest[ITEM_DIGEST], size_t *ret_length);

struct item_list {
	struct item *first, *last;
	size_t count;
};
void item_list_add(struct item_list *list, struct item *item);
struct item *item_list_take(struct item_list *list); /* the first; NULL: none */
/* All of the other behind those of the list; the other is empty then. */
void item_list_join(struct item_list *list, struct item_list *other);
