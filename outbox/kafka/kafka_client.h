#pragma once
/*
 * The steps that producer, topic metadata and consumer share for a librdkafka handle. Private to
 * this folder.
 */
#include <librdkafka/rdkafka.h>
#include "errors.h"
#include "kafka_settings.h"

/* Takes conf in every case; NULL conf (its maker failed and filled *err) gives NULL. */
rd_kafka_t *kafka_client_open(rd_kafka_type_t type, rd_kafka_conf_t *conf,
    const struct kafka_settings *kafka, struct err *err);

/*
 * rd_kafka_destroy joins librdkafka's threads and has no limit of its own: a thread in a name
 * look-up can hold it for half a minute. So it runs on a thread of its own and is waited for at
 * most wait_ms; false when it goes on in the background. Topic handles, queues and events of the
 * handle must be gone before. NULL is fine.
 */
bool kafka_client_close(rd_kafka_t *handle, int wait_ms);

/* Fills *err with "what: text (NAME)" and the code's kind; always returns false. */
bool kafka_client_failed(struct err *err, rd_kafka_resp_err_t code, const char *what);

/*
 * The same for a request that may have failed since no broker can be reached: then *err has the
 * reason and its cure, if librdkafka found one.
 */
bool kafka_client_unanswered(
    struct err *err, const rd_kafka_t *handle, rd_kafka_resp_err_t code, const char *what);
/*
 * Writes an error that librdkafka reports by itself: with the cure if the client cannot connect,
 * and else in librdkafka's words. True: the log has the reason already.
 */
bool kafka_client_explain(const rd_kafka_t *handle, rd_kafka_resp_err_t code, const char *text,
    char *ret_text, size_t size);

/*
 * One topic's metadata, freed by the caller whatever the result says. Blocks. Asking creates no
 * topic (allow.auto.create.topics) and the client does not go on asking for it by itself.
 */
rd_kafka_resp_err_t kafka_client_topic(rd_kafka_t *handle, const char *name, int timeout_ms,
    const struct rd_kafka_metadata **ret_metadata);

/* The same of many; the answer may name more of them. */
rd_kafka_resp_err_t kafka_client_topics(rd_kafka_t *handle, const char *const *names, int count,
    int timeout_ms, const struct rd_kafka_metadata **ret_metadata);

/* The codes that say so of a topic. */
bool kafka_client_is_missing(rd_kafka_resp_err_t code);

/* For OWNED(...). */
static inline void kafka_client_free_metadata(const struct rd_kafka_metadata **metadata)
{
	if (*metadata)
		rd_kafka_metadata_destroy(*metadata);
}
