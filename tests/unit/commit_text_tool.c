/*
 * commit_text_tool SERVERS GROUP TOPIC PARTITION [OFFSET TEXT]: what a group has committed, as
 * "OFFSET TEXT"; or commits that, as somebody else would. Shares no code with the inbox.
 */
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 20000 };

static rd_kafka_t *open_client(const char *servers, const char *group)
{
	char text[512];
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_conf_set(conf, "bootstrap.servers", servers, text, sizeof text);
	rd_kafka_conf_set(conf, "group.id", group, text, sizeof text);
	rd_kafka_conf_set(conf, "log_level", "0", text, sizeof text);
	return rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
}

int main(int count, char **arguments)
{
	if (count != 5 && count != 7)
		return 64;
	rd_kafka_t *client = open_client(arguments[1], arguments[2]);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_t *place = rd_kafka_topic_partition_list_add(
	    list, arguments[3], (int)strtol(arguments[4], NULL, 10));
	rd_kafka_resp_err_t code;
	if (count == 7) {
		place->offset = strtoll(arguments[5], NULL, 10);
		place->metadata = strdup(arguments[6]);
		place->metadata_size = strlen(arguments[6]);
		code = rd_kafka_commit(client, list, 0);
	} else {
		code = rd_kafka_committed(client, list, WAIT_MS);
		printf("%" PRId64 " %.*s\n", place->offset < 0 ? -1 : place->offset,
		    (int)place->metadata_size, place->metadata ? (char *)place->metadata : "");
	}
	if (code)
		fprintf(stderr, "%s\n", rd_kafka_err2str(code));
	rd_kafka_topic_partition_list_destroy(list);
	rd_kafka_destroy(client);
	return code ? 1 : 0;
}
