#pragma once
/*
 * A member of a consumer group that reads one topic. The caller decides where each partition
 * begins: it stores the offsets, in the same transaction as the effects of the records. The offsets
 * that Kafka keeps for the group are written now and then (group_note), for people and their tools,
 * and never read.
 *
 * An offset that Kafka does not have, or no longer has, is an error, and nothing is skipped
 * (auto.offset.reset = error).
 *
 * One thread owns it. Calls block for their timeout.
 */
#include "consumer.h"

enum { GROUP_BEGINNING = -2 }; /* in place of an offset: the first one that there is */

struct group_place {
	int32_t partition;
	int64_t offset; /* the next one to be read */
};

struct group_callbacks {
	/*
	 * All of these are this member's now, and no other ones: fills in where each begins. False:
	 * it cannot say (*err), and a later group_read calls it again.
	 */
	bool (*assigned)(void *context, struct group_place *places, int count, struct err *err);
	/*
	 * These partitions are revoked. Records that were read and not yet stored belong to another
	 * member.
	 */
	void (*revoked)(void *context);
	void *context;
};

struct group;

/* name: of the consumer group. Texts are copied. */
struct group *group_create(const struct kafka_settings *kafka, const char *name, const char *topic,
    const struct group_callbacks *callbacks, struct err *err);
/* True: certificates of its cluster have changed, or see unowned.h; the owner replaces it. */
bool group_is_stale(const struct group *group);
/* Leaves the group; waits at most wait_ms for that and for librdkafka's threads. NULL is fine. */
void group_destroy(struct group *group, int wait_ms);

/*
 * Returns the next record; *ret_some is false if none came within timeout_ms, or if partitions were
 * assigned or revoked. Callbacks run only inside this call. Keys, payloads and headers of the
 * records stay valid, and in memory, until group_release.
 *
 * False: an error. Records that were returned before stay valid. ERR_RETRY: brokers are away, or an
 * offset is not known yet; reading goes on by itself. ERR_FATAL: an offset does not exist; its
 * partition is blocked until a group_seek, and the others go on.
 */
bool group_read(struct group *group, int timeout_ms, struct consumer_record *ret_record,
    bool *ret_some, struct err *err) MUST_CHECK;
void group_release(struct group *group);

/*
 * Continues at these places, also where an offset did not exist. A partition of this member that is
 * not among them is not read until a later call names it. Records that are ready are dropped, and
 * positions are unknown afterwards.
 */
bool group_seek(
    struct group *group, const struct group_place *places, int count, struct err *err) MUST_CHECK;

/*
 * Where reading has come to in a partition: the offset behind the last record that was handed out,
 * or the partition's end once it was met there (offsets between the two have no records). -1:
 * not known yet.
 */
int64_t group_position(const struct group *group, int32_t partition);
/* Its end was met, and no record came since. */
bool group_at_end(const struct group *group, int32_t partition);

/*
 * Fills in the offset behind the last record of each partition as it is now, by ListOffsets: all
 * that was acknowledged before the call, and belongs to no open transaction, lies below it. Waits
 * for the brokers. False: *err is the first failure, and a partition that could not be queried, as
 * one without a leader, has -1; the others are filled in.
 */
bool group_ends(struct group *group, struct group_place *places, int count, int timeout_ms,
    struct err *err) MUST_CHECK;

/* Tells Kafka, in the background and only once, where the group is. */
void group_note(struct group *group, const struct group_place *places, int count);
