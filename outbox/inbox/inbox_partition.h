#pragma once
/*
 * An assigned partition: its finished offsets, its dedup store, its rules.
 *
 * Records come in the order of their offsets. Some may lie before the committed offset, because a
 * store needs them to be complete again ("known": they were finished, here or elsewhere).
 *
 * Owned by the loop's thread.
 */
#include "commit_text.h"
#include "inbox_settings.h"
#include "item.h"
#include "position_prefix.h"
#include "subscription.h"

/* A store, the number of its pending ids, and the number of partitions that these belong to. */
struct inbox_partition_store {
	struct outbox_dedup *dedup; /* NULL: none */
	int64_t pending;
	int partitions;
	int64_t trouble_until; /* clock_ms: the store did not answer, and is not queried before */
	/* the alarms and excess of the filter that were logged */
	struct {
		uint64_t alarms; /* outbox_dedup_stats.alarms */
		bool alarm, overfilled;
	} told;
};

/* Rules, of one partition or of all. */
struct inbox_partition_rules {
	struct outbox_rules *open; /* NULL: none */
	int64_t trouble_until;     /* clock_ms: they did not answer, and are not queried before */
};

/* Why the loop takes no new records from a partition. */
enum inbox_partition_stop {
	STOP_TEXT = 1 << 0,    /* the text of the commit gets too long */
	STOP_ITEMS = 1 << 1,   /* it uses its part of the memory */
	STOP_FULL = 1 << 2,    /* the memory of all partitions is full */
	STOP_BLOCKED = 1 << 3, /* blocked until an operator helps */
	STOP_PAUSED = 1 << 4,  /* outbox_inbox_pause */
	STOP_DUE = 1 << 5,     /* retry topic: its next message is not due yet */
};

/*
 * The life of a partition, from its assignment until it is revoked or opened again, which may come
 * in every state. The table is in inbox_partition.c, and inbox_partition_move checks each move in
 * test builds.
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
	const char *topic;                /* owned by the settings */
	int topic_number;
	int32_t partition;
	int retry; /* number of its retry topic; -1: none */
	uint64_t salt;
	struct inbox_partition_store own, *store;       /* store: its own, or the common one */
	struct inbox_partition_rules own_rules, *rules; /* rules: its own, or the common ones */

	struct offsets offsets;
	int64_t read; /* offset behind the last record that has arrived */
	struct position_memo positions;
	bool behind;       /* it still reads records from before the commit, also after a skip */
	int64_t committed; /* offset of the last commit, which had this text: */
	char text[COMMIT_TEXT_SIZE];
	size_t mark_length; /* size of the text's mark */
	bool changed;       /* something changed since that commit; also set if a commit failed */
	/* The next commit, once it is prepared; with settings.report it waits for the reports. */
	bool prepared;
	int64_t next;
	char next_text[COMMIT_TEXT_SIZE];
	struct text handled; /* ids of handled messages to report, UUID_BYTES each */
	int64_t taken;       /* records taken since the text's length was checked */

	struct item_list arrived; /* not yet admitted */
	struct item_list logging; /* done, but their ids are not yet in the store */
	int64_t items, bytes;     /* in memory */
	int64_t known;            /* items that were finished before */
	int64_t pending;          /* items whose ids are pending in the store */
	unsigned stops;
	bool unflushed; /* ids were logged since inbox_partition_flush */
	bool paused;    /* in librdkafka, which may have refused to pause or resume it */
};

/* The store and the rules of all partitions; NULL: each partition has its own. */
struct inbox_partition_common {
	struct inbox_partition_store *store;
	struct inbox_partition_rules *rules;
};
/*
 * place: the commit; its offset is replaced by that of the first record to read. ERR_RETRY: try
 * again later; after any other error, never.
 */
struct inbox_partition *inbox_partition_open(const struct inbox_settings *settings,
    struct inbox_partition_common common, struct subscription *subscription,
    struct subscription_place *place, struct err *err);
/* The caller first sets the fields that the new state needs. */
void inbox_partition_move(struct inbox_partition *assigned, enum inbox_partition_state state);
/* False: the caller must not commit its offsets, because they belong to another log. */
bool inbox_partition_commits(const struct inbox_partition *assigned);
/* Logs that the partition does not have the offset. */
void inbox_partition_log_gone(const struct inbox_partition *assigned, int64_t offset);
/* Blocks the partition: nothing is read or committed until somebody sets an offset and the
 * partition is opened again. */
void inbox_partition_stop_unset(struct inbox_partition *assigned);
/* Also frees the messages in `arrived` and `logging`. */
void inbox_partition_close(struct inbox_partition *assigned);

/* The id by which the store knows the item; it points into the item's memory. */
struct outbox_dedup_id inbox_partition_id(const struct item *item);

/* Takes ownership of the item. False: the record is already here or is not wanted, and the item is
 * freed. */
bool inbox_partition_arrive(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct item *item);

/*
 * Queries the store and the rules about the items that have arrived and sets the fate of each.
 * Stops where the store has no room, or where an item is too far behind an unfinished one. Items
 * leave in order. ERR_RETRY: some may have left. ret_trouble: on failure, the trouble_until of the
 * store or of the rules, whichever failed.
 */
bool inbox_partition_admit(struct inbox_partition *assigned, const struct inbox_settings *settings,
    struct item_list *ret_items, int64_t **ret_trouble, struct err *err);
/* Opens rules, with `path` as their folder, or with the server of the settings. NULL: there are
 * none (ERR_CONFIG and so on: or they cannot be opened). */
bool inbox_partition_open_rules(const struct inbox_settings *settings, const char *path,
    struct inbox_partition_rules *rules, struct err *err) MUST_CHECK;
/* Queries the store again about an item that waits until its copy ends (FATE_ASK). */
bool inbox_partition_ask_again(
    struct inbox_partition *assigned, struct item *item, struct err *err);
/* Must the rules judge the item before it is handled? */
bool inbox_partition_must_judge(const struct inbox_partition *assigned, const struct item *item);
/* For an item that could not be judged when it was admitted, since its id was being handled. */
bool inbox_partition_judge(
    struct inbox_partition *assigned, struct item *item, struct err *err) MUST_CHECK;
/* Sets the fate of an item by the store's answer about its id. */
void inbox_partition_apply_state(struct item *item, enum outbox_dedup_state state);
/* The id was given back to the store, which must be queried again before the item is handled. */
void inbox_partition_forget_state(struct item *item);
/* Records the items in `logging`. True: the items in ret_items are recorded. */
bool inbox_partition_log(
    struct inbox_partition *assigned, struct item_list *ret_items, struct err *err);

/* Writes the ids of the store to the kernel, so that they outlive a killed process. */
bool inbox_partition_flush(struct inbox_partition *assigned, struct err *err);
/*
 * Makes finished items durable, and prepares a commit of offsets.done. False: not now.
 */
bool inbox_partition_checkpoint(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct err *err);
/* The prepared commit is sent now: it becomes the last one, and is returned. */
struct subscription_place inbox_partition_take_commit(struct inbox_partition *assigned);
