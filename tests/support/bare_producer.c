/*
 * A producer and nothing else, with one record for each partition of the topics that stdin names, a
 * line each: "topic partitions". Prints how much memory that takes, in bytes. For comparisons.
 */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long resident(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%*s %ld", &pages) != 1)
		abort();
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char error[256];
	if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK)
		abort();
}

int main(int argc, char **argv)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char name[256];
	int partitions;
	if (argc < 2)
		return 2;
	set(conf, "bootstrap.servers", argv[1]);
	set(conf, "enable.idempotence", "true");
	rd_kafka_t *handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, NULL, 0);
	while (scanf("%255s %d", name, &partitions) == 2) {
		rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
		for (int p = 0; p < partitions; p++)
			if (rd_kafka_produce(
				topic, p, RD_KAFKA_MSG_F_COPY, "x", 1, NULL, 0, NULL) != 0)
				return 1;
		rd_kafka_poll(handle, 0);
	}
	if (rd_kafka_flush(handle, 300000) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return 1;
	printf("%ld\n", resident());
	fflush(stdout);
	_exit(0);
}
