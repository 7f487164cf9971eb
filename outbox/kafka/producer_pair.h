#pragma once
/*
 * The producer of a shard: one idempotent producer, or, with transactions, two that take turns.
 *
 * When a commit returns, the coordinator has noted it and goes on: it writes a marker into each
 * partition, and then a note that they are complete. Until then it refuses partitions of the next
 * transaction of the same id, librdkafka tries again after 20 ms, and no answer tells how long the
 * coordinator takes. So the next transaction has another id, and is filled while the commit of the
 * one before is in flight. The caller commits it after that commit has returned. So committed
 * records are in the order of one producer: if a commit fails, nothing behind it is committed, and
 * the INIT of the next pair aborts what was filled.
 *
 * Owned by one thread, like a producer. Nothing blocks, except producer_pair_destroy and
 * producer_pair_knows.
 */
#include "producer.h"

struct producer_pair;

/*
 * transactional_id: both ids begin with it; NULL: one producer without transactions. The other
 * arguments are those of producer_create_lingering; each producer has them.
 */
struct producer_pair *producer_pair_create(const struct kafka_settings *kafka,
    const char *transactional_id, int64_t queue_bytes, int64_t queue_messages, int topics,
    int64_t linger_ms, struct err *err);
/* As producer_destroy: waits at most wait_ms for the background threads of both. NULL is fine. */
void producer_pair_destroy(struct producer_pair *pair, int wait_ms);

/*
 * As producer_begin and producer_work. INIT is a call of both producers, and no record may be sent
 * before it is done. With COMMIT the other producer gets the turn at once. One call at a time.
 */
void producer_pair_begin(struct producer_pair *pair, enum producer_call call);
enum producer_outcome producer_pair_work(struct producer_pair *pair, struct err *ret_why);
/* The producer that has the turn: for producer_topic and producer_send. */
struct producer *producer_pair_turn(struct producer_pair *pair);

/* Readable as producer_fd; -1: there is no second producer. */
void producer_pair_fds(const struct producer_pair *pair, int ret_fds[2]);
/* The functions below concern both, and are otherwise those of a producer. */
int producer_pair_poll(struct producer_pair *pair, struct producer_report *reports, int max);
bool producer_pair_is_fatal(const struct producer_pair *pair, struct err *ret_why);
bool producer_pair_is_bloated(const struct producer_pair *pair);
bool producer_pair_is_stale(const struct producer_pair *pair);
void producer_pair_close_topic(struct producer_pair *pair, const char *topic);
bool producer_pair_knows(
    struct producer_pair *pair, const char *topic, int32_t partitions, int wait_ms);
int64_t producer_pair_last_error(const struct producer_pair *pair, char *ret_text, size_t size);
int64_t producer_pair_heard(const struct producer_pair *pair);
/* The sums of both; the larger round trip, and the later time. */
struct producer_figures producer_pair_figures(const struct producer_pair *pair);
