#pragma once
/*
 * An assigned partition: its finished offsets, its store of dedup, its rules.
 *
 * Records come in by the order of their offsets, also those from before the committed one that a
 * store needs to be whole again ("known": they were finished, here or elsewhere).
 *
 * Owned by the loop's thread.
 */
#include "commit_text.h"
#include "inbox_settings.h"
#include "item.h"
#include "subscription.h"

/* A store, how many ids are pending in it, and of how many partitions. */
struct inbox_partition_store {
	struct outbox_dedup *dedup; /* NULL: none */
	int64_t pending;
	int partitions;
	int64_t trouble_until; /* clock_ms: it did not answer, and is asked nothing before */
};

/* Why nothing new is taken of a partition. */
enum inbox_partition_stop {
	STOP_TEXT = 1 << 0,     /* the text of the commit gets too long */
	STOP_ITEMS = 1 << 1,    /* it has its part of the memory */
	STOP_FULL = 1 << 2,     /* all have */
	STOP_STANDING = 1 << 3, /* until somebody helps */
	STOP_PAUSED = 1 << 4,   /* outbox_inbox_pause */
	STOP_DUE = 1 << 5,      /* of a retry topic: the next one is not due yet */
};

/*
 * From its assignment until it is revoked or taken anew, which may come in every state. The table
 * is in inbox_partition.c, and inbox_partition_move checks each move in test builds.
 */
enum inbox_partition_state {
	ASSIGNED_OPENING,
	ASSIGNED_READING,
	ASSIGNED_SKIPPING,
	ASSIGNED_MISSING,
	ASSIGNED_UNSET,
	ASSIGNED_STATES
};
extern const struct state_table inbox_partition_states;

struct inbox_partition {
	enum inbox_partition_state state; /* inbox_partition_move sets it */
	const char *topic;                /* the settings' */
	int topic_number;
	int32_t partition;
	int retry; /* the retry topic it is of; -1: none */
	uint64_t salt;
	struct inbox_partition_store own, *store; /* store: its own, or the one of all */
	struct outbox_rules *rules;               /* NULL: none */

	struct offsets offsets;
	int64_t read;      /* behind the last record that has arrived */
	bool behind;       /* it reads older records than the committed ones, also after a skip */
	int64_t committed; /* by the last commit, with this text: */
	char text[COMMIT_TEXT_SIZE];
	size_t mark_length; /* of it */
	bool changed;       /* since then; also when a commit failed */
	int64_t taken;      /* since the text's length was looked at */

	struct item_list arrived; /* not yet admitted */
	struct item_list logging; /* done, and their ids not yet in the store */
	int64_t items, bytes;     /* in memory */
	int64_t known;            /* items that were finished before */
	int64_t pending;          /* items whose ids are pending in the store */
	unsigned stops;
	bool unflushed; /* ids were logged since inbox_partition_flush */
	bool paused;    /* in librdkafka, which may have refused to pause or resume it */
};

/*
 * place: what is committed; its offset becomes that of the first record to be read. common: the
 * store of all partitions, or NULL. ERR_RETRY: again later; others: never.
 */
struct inbox_partition *inbox_partition_open(const struct inbox_settings *settings,
    struct inbox_partition_store *common, struct subscription *subscription,
    struct subscription_place *place, struct err *err);
/* The fields that the new state needs are set before. */
void inbox_partition_move(struct inbox_partition *assigned, enum inbox_partition_state state);
/* False: its offsets are not to be written, since they are not those of this log. */
bool inbox_partition_commits(const struct inbox_partition *assigned);
/* In the log: the offset is not in the partition. */
void inbox_partition_log_gone(const struct inbox_partition *assigned, int64_t offset);
/* Nothing is read or committed of it until somebody sets an offset, and it is taken anew. */
void inbox_partition_stop_unset(struct inbox_partition *assigned);
/* Also frees the messages in `arrived` and `logging`. */
void inbox_partition_close(struct inbox_partition *assigned);

/* By which the store knows the item; of its memory. */
struct outbox_dedup_id inbox_partition_id(const struct item *item);

/* Takes the item over. False: it is here already, or not wanted, and gone. */
bool inbox_partition_arrive(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct item *item);

/*
 * Asks the store and the rules about the items that have arrived and gives each its fate. Stops
 * where the store has no room, or where an item is too far behind an unfinished one. Items leave in
 * order. ERR_RETRY: some may have left.
 */
bool inbox_partition_admit(struct inbox_partition *assigned, const struct inbox_settings *settings,
    struct item_list *ret_items, struct err *err);
/* Asks the store again about an item that waits for a copy to end (FATE_ASK). */
bool inbox_partition_ask_again(
    struct inbox_partition *assigned, struct item *item, struct err *err);
/* Records what is in `logging`. True: those in ret_items are. */
bool inbox_partition_log(
    struct inbox_partition *assigned, struct item_list *ret_items, struct err *err);

/* Writes the ids of the store to the kernel, so that they outlive a killed process. */
bool inbox_partition_flush(struct inbox_partition *assigned, struct err *err);
/* Makes durable what is done, and writes the text of a commit of offsets.done. False: not now. */
bool inbox_partition_checkpoint(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct err *err);
