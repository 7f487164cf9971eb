#pragma once
/*
 * The Kafka side of a replay: rows in the order of their ids go in, records go out in that order
 * along each key, and the id up to which Kafka acknowledged everything comes back.
 *
 * A broken producer is replaced, and records without an acknowledgement are sent again, in order. A
 * partition's first record goes alone until it is acknowledged, since a broker takes any first
 * batch of a producer that it does not know: without this, records could pass one that is refused.
 * After a refusal all records that were under way are sent one by one, to find the one that is
 * refused; it ends the replay, since no later record of its key may pass it.
 *
 * One thread; only the end of a producer blocks, and a question about a topic (200 ms).
 */
#include "topic_metadata.h"
#include "config.h"
#include "message.h"

struct replay_send;

/* The pointers must outlive it. target NULL: each row's own topic. */
struct replay_send *replay_send_create(const struct publisher_settings *publisher,
    struct topic_metadata *metadata, int64_t replay_id, const char *target, int64_t last_id,
    struct err *err);
void replay_send_destroy(struct replay_send *send);

/*
 * Takes the message over. Ids do not go down, and all rows that share an id are added before the
 * next step: last_id passes an id when every row with it is acknowledged.
 */
void replay_send_add(struct replay_send *send, const struct message *message);

/*
 * Takes reports and sends at most `most` records that were not sent before, as long as fewer than
 * `ahead` rows are sent beyond the `noted` first ones. *ret_sent: how many. ERR_REJECT: a row that
 * cannot be sent as it is, by name; ERR_RETRY: Kafka does not work.
 */
bool replay_send_step(struct replay_send *send, int64_t noted, int64_t ahead, int64_t most,
    int64_t *ret_sent, struct err *err) MUST_CHECK;

struct replay_send_state {
	int64_t last_id;      /* everything up to here is acknowledged */
	int64_t done;         /* number of rows up to last_id */
	int64_t acknowledged; /* done, and rows of the next id of which not all are acknowledged */
	int64_t waiting;      /* rows that were not sent yet */
	int64_t unacked;      /* rows that are not acknowledged, these included */
	int64_t flying;       /* records in Kafka's hands */
	int64_t bytes;        /* size of the rows in memory */
};
struct replay_send_state replay_send_state(const struct replay_send *send);

int replay_send_fd(const struct replay_send *send); /* readable: step; -1: no producer now */
/* Why nothing is acknowledged, as far as it is known. */
const char *replay_send_error(struct replay_send *send);
