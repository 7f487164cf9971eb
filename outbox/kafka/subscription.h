#pragma once
/*
 * A member of a consumer group that reads topics, and commits its offsets to Kafka with a text
 * beside each. Rebalances are eager: all partitions are taken away before some are given.
 *
 * One thread owns it; callbacks come from subscription_step, _read and _close only.
 */
#include "consumer.h"

enum {
	SUBSCRIPTION_TEXT = 4096, /* bytes of the text of a commit, as brokers allow by default */
	SUBSCRIPTION_NONE = -1,   /* offset: nothing is committed */
	SUBSCRIPTION_BEGINNING = -2,
	SUBSCRIPTION_END = -3,
};

struct subscription_place {
	const char *topic;
	int32_t partition;
	int64_t offset;
	const char *text; /* of the commit; "": none */
};

struct subscription_callbacks {
	/*
	 * These, and no others, are this member's now. offset and text are what is committed, and
	 * the callee replaces the offset by that of the first record to be read; NONE: it is not
	 * read before subscription_begin. False: it cannot say (*err), and is called again by a
	 * later step.
	 */
	bool (*assigned)(
	    void *context, struct subscription_place *places, int count, struct err *err);
	/*
	 * The member has no partition when this returns. Offsets that it commits during the call
	 * (waiting) still count, unless the partitions are lost: other members may have them
	 * already.
	 */
	void (*revoked)(void *context, bool lost);
	/* This offset is not in the partition: nothing is read of it until subscription_again. */
	void (*out_of_range)(void *context, const char *topic, int32_t partition);
	/* The topic or the partition does not exist, or no longer exists. */
	void (*missing)(void *context, const char *topic, int32_t partition);
	/* A commit that was not waited for did not happen. */
	void (*not_committed)(void *context, const struct err *err);
	void *context;
};

struct subscription_settings {
	const struct kafka_settings *kafka;
	const char *group;
	const char *const *topics; /* NULL-ended */
};

struct subscription;

/* Only a client: it becomes a member of the group with subscription_join. */
struct subscription *subscription_create(const struct subscription_settings *settings,
    const struct subscription_callbacks *callbacks, struct err *err);
/* Once, with the same settings, before any function below except _is_stale and _destroy. */
bool subscription_join(struct subscription *subscription,
    const struct subscription_settings *settings, struct err *err) MUST_CHECK;
/* True: certificates of its cluster have changed, or see unowned.h; the owner replaces it. */
bool subscription_is_stale(const struct subscription *subscription);
/* Gives the partitions back (revoked is called), and leaves the group. */
void subscription_close(struct subscription *subscription);
/* Without the callback, if it was not closed; waits at most wait_ms for librdkafka's threads. */
void subscription_destroy(struct subscription *subscription, int wait_ms);

/*
 * Rebalances and errors; waits for none. To be called at least every max.poll.interval.ms, or the
 * partitions are lost. False: ERR_RETRY, it goes on by itself; ERR_FATAL: it does not.
 */
bool subscription_step(struct subscription *subscription, struct err *err) MUST_CHECK;
/* A record, valid during the call. False: this is the last one of this read. */
typedef bool subscription_see(void *context, const struct consumer_record *record);
/* Those that are there; *ret_count: how many, also when it fails, as subscription_step does. */
bool subscription_read(struct subscription *subscription, subscription_see *see, void *context,
    int *ret_count, struct err *err) MUST_CHECK;
/* Readable when there may be something to read; the reader empties it before he reads. */
int subscription_fd(const struct subscription *subscription);

/*
 * Until when (clock_ms) nobody else has the partitions for certain, whatever this process does not
 * know yet because it was paused: a part of session.timeout.ms after a commit was sent that the
 * group's coordinator has taken, and of max.poll.interval.ms after the last step. Past: not known.
 */
int64_t subscription_held_until(const struct subscription *subscription);
/* No commit was sent for so long that it is time for one, if only for that. */
bool subscription_is_to_ask(const struct subscription *subscription);

/*
 * Hands out no record of the partition until it is resumed, and then reads again the records that
 * it had read ahead.
 */
bool subscription_pause(struct subscription *subscription, const struct subscription_place *place,
    bool pause, struct err *err) MUST_CHECK;
/* Calls `assigned` again for the partitions, as if they had just been assigned. */
bool subscription_again(struct subscription *subscription, struct err *err) MUST_CHECK;
/*
 * Reads these partitions from these offsets on, whether they were read before or not; none is
 * paused. Records that were read ahead of other partitions are read again.
 */
bool subscription_begin(struct subscription *subscription, const struct subscription_place *places,
    int count, struct err *err) MUST_CHECK;

/* wait: until the broker has answered. */
bool subscription_commit(struct subscription *subscription, const struct subscription_place *places,
    int count, bool wait, struct err *err) MUST_CHECK;

/* The first offset that there is, and the end. Waits for the broker. */
bool subscription_range(struct subscription *subscription, const char *topic, int32_t partition,
    int64_t *ret_low, int64_t *ret_high, struct err *err) MUST_CHECK;
/*
 * The offset of the first record with this time or a later one; INT64_MAX: there is none. Waits as
 * well.
 */
bool subscription_at(struct subscription *subscription, const char *topic, int32_t partition,
    int64_t time_ms, int64_t *ret_offset, struct err *err) MUST_CHECK;
