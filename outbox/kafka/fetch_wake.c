#include "fetch_wake.h"

enum { WAKE_MS = 50 };

/* A queue that was full since the last question is half full once this many records were read. */
static size_t half_of_bounds(const struct fetch_wake *wake)
{
	size_t mean_bytes = wake->bytes / wake->records + 1;
	size_t most = wake->most_bytes / mean_bytes;

	return (most < wake->most_records ? most : wake->most_records) / 2;
}

void fetch_wake_look(struct fetch_wake *wake, rd_kafka_t *handle, rd_kafka_queue_t *queue)
{
	rd_kafka_topic_partition_list_t *list;
	size_t half;

	if (wake->records == 0)
		return;
	half = half_of_bounds(wake);
	if (wake->records < half || rd_kafka_queue_length(queue) > half)
		return;
	wake->records = wake->bytes = 0;
	if (rd_kafka_assignment(handle, &list))
		return;
	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = RD_KAFKA_OFFSET_END;
	rd_kafka_offsets_for_times(handle, list, WAKE_MS); /* whatever it says */
	rd_kafka_topic_partition_list_destroy(list);
}
