#include "committed.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>
#include "kafka_client.h"
#include "kafka_conf.h"
#include "text.h"

enum { ANSWER_MS = 10000, CLOSE_MS = 2000 };

struct committed {
	rd_kafka_t *handle;
};

struct committed *committed_open(
    const struct kafka_settings *kafka, const char *group, struct err *err)
{
	static const char *const defaults[] = {NULL};
	rd_kafka_conf_t *conf = kafka_conf_reader(kafka, "read_committed", "error", defaults, err);

	if (conf && !kafka_conf_set(conf, "group.id", group, err)) {
		rd_kafka_conf_destroy(conf);
		return NULL;
	}
	rd_kafka_t *handle = kafka_client_open(RD_KAFKA_CONSUMER, conf, kafka, err);
	if (!handle)
		return NULL;

	struct committed *committed = xcalloc(1, sizeof *committed);
	committed->handle = handle;
	return committed;
}

void committed_close(struct committed *committed)
{
	if (!committed)
		return;
	kafka_client_close(committed->handle, CLOSE_MS);
	free(committed);
}

bool committed_read(struct committed *committed, const char *topic, int32_t partition,
    int64_t *ret_offset, char **ret_text, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_t *place =
	    rd_kafka_topic_partition_list_add(list, topic, partition);
	rd_kafka_resp_err_t code = rd_kafka_committed(committed->handle, list, ANSWER_MS);

	if (!code)
		code = place->err;
	if (!code) {
		*ret_offset = place->offset < 0 ? SUBSCRIPTION_NONE : place->offset;
		*ret_text = xformat("%.*s", (int)place->metadata_size,
		    place->metadata ? (const char *)place->metadata : "");
	}
	rd_kafka_topic_partition_list_destroy(list);
	return !code || kafka_client_failed(err, code, topic);
}

bool committed_write(
    struct committed *committed, const struct subscription_place *place, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_t *element =
	    rd_kafka_topic_partition_list_add(list, place->topic, place->partition);
	element->offset = place->offset;
	element->metadata = xstrdup(place->text); /* librdkafka frees it */
	element->metadata_size = strlen(place->text);
	rd_kafka_resp_err_t code = rd_kafka_commit(committed->handle, list, 0);
	if (!code)
		code = element->err;
	rd_kafka_topic_partition_list_destroy(list);
	return !code || kafka_client_failed(err, code, place->topic);
}
