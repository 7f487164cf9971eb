#include "unowned.h"

#include <stdlib.h>

#include "backoff.h"
#include "cleanup.h"
#include "clock.h"
#include "kafka_client.h"
#include "logging.h"
#include "text.h"

enum {
	PAUSE_MS = 30000, /* after a look that found every partition owned, or no answer */
	/*
	 * The longest that librdkafka takes. If a request ends by its time while the coordinator is
	 * away, librdkafka (2.0 to 2.15) continues it in freed memory when the coordinator is
	 * back, and aborts the process.
	 */
	DESCRIBE_MS = 3600000,
	METADATA_MS = 2000,
};

struct unowned_watch {
	rd_kafka_t *handle;
	char *group;
	rd_kafka_topic_partition_list_t *topics;
	rd_kafka_queue_t *answers;
	bool asked;           /* the answer to DescribeConsumerGroups is on its way */
	bool outdated;        /* the group was rebalanced since the request */
	bool stale;           /* a request ended by its time: see DESCRIBE_MS */
	int64_t look_at;      /* clock_ms */
	struct backoff pause; /* attempts: rejoins that did not help */
	int64_t pause_ms;     /* from the next assignment to the look at it */
};

struct unowned_watch *unowned_watch_create(
    rd_kafka_t *handle, const char *group, const rd_kafka_topic_partition_list_t *topics)
{
	struct unowned_watch *watch = xcalloc(1, sizeof *watch);

	watch->handle = handle;
	watch->group = xstrdup(group);
	watch->topics = rd_kafka_topic_partition_list_copy(topics);
	watch->answers = rd_kafka_queue_new(handle);
	watch->look_at = INT64_MAX;
	/* The jitter is wide: the members look one after the other, and the first one that rejoins
	 * starts the rebalance that helps all of them. */
	watch->pause = (struct backoff){
	    .first_ms = 6000, .cap_ms = 600000, .jitter = 0.4, .seed = (uint64_t)clock_random()};
	watch->pause_ms = backoff_next_ms(&watch->pause);
	return watch;
}

void unowned_watch_destroy(struct unowned_watch *watch)
{
	if (!watch)
		return;
	rd_kafka_queue_destroy(watch->answers);
	rd_kafka_topic_partition_list_destroy(watch->topics);
	free(watch->group);
	free(watch);
}

void unowned_watch_assigned(struct unowned_watch *watch)
{
	watch->look_at = clock_ms() + watch->pause_ms;
	watch->outdated = watch->asked;
}

static void describe_group(struct unowned_watch *watch)
{
	const char *group = watch->group;
	rd_kafka_AdminOptions_t *options =
	    rd_kafka_AdminOptions_new(watch->handle, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS);
	char text[128];

	rd_kafka_AdminOptions_set_request_timeout(options, DESCRIBE_MS, text, sizeof text);
	rd_kafka_DescribeConsumerGroups(watch->handle, &group, 1, options, watch->answers);
	rd_kafka_AdminOptions_destroy(options);
	watch->asked = true;
}

/* --- the comparison -------------------------------------------------------------------------- */

static void mark_owned(
    const rd_kafka_ConsumerGroupDescription_t *group, const char *topic, bool *owned, int count)
{
	size_t members = rd_kafka_ConsumerGroupDescription_member_count(group);

	for (size_t i = 0; i < members; i++) {
		const rd_kafka_topic_partition_list_t *list =
		    rd_kafka_MemberAssignment_partitions(rd_kafka_MemberDescription_assignment(
			rd_kafka_ConsumerGroupDescription_member(group, i)));

		for (int j = 0; list && j < list->cnt; j++)
			if (text_equal(list->elems[j].topic, topic) &&
			    list->elems[j].partition < count)
				owned[list->elems[j].partition] = true;
	}
}

static bool has_unowned(const struct unowned_watch *watch,
    const rd_kafka_ConsumerGroupDescription_t *group, const struct rd_kafka_metadata_topic *topic)
{
	int count = topic->partition_cnt, missing = 0, first = -1;

	/* A topic that does not exist has no partitions to own. */
	if (topic->err || count <= 0)
		return false;

	bool *owned = xcalloc((size_t)count, sizeof *owned);
	mark_owned(group, topic->topic, owned, count);
	for (int i = count - 1; i >= 0; i--)
		if (!owned[i]) {
			missing++;
			first = i;
		}
	free(owned);

	if (missing)
		log_warn("group_partitions_unowned", {"group", LOG_TEXT(watch->group)},
		    {"topic", LOG_TEXT(topic->topic)}, {"partition", LOG_INT(first)},
		    {"partitions", LOG_INT(missing)},
		    {"consequence",
			LOG_TEXT("no member of the group reads these partitions; this consumer "
				 "rejoins the group, so that they are assigned")});
	return missing;
}

static bool compare_assignments(
    const struct unowned_watch *watch, const rd_kafka_ConsumerGroupDescription_t *group)
{
	OWNED(kafka_client_free_metadata) const struct rd_kafka_metadata *metadata = NULL;
	const char **names = xcalloc((size_t)watch->topics->cnt, sizeof *names);
	bool found = false;

	for (int i = 0; i < watch->topics->cnt; i++)
		names[i] = watch->topics->elems[i].topic;
	rd_kafka_resp_err_t code =
	    kafka_client_topics(watch->handle, names, watch->topics->cnt, METADATA_MS, &metadata);
	free(names);

	for (int i = 0; !code && !found && i < metadata->topic_cnt; i++)
		found = rd_kafka_topic_partition_list_find(
			    watch->topics, metadata->topics[i].topic, RD_KAFKA_PARTITION_UA) &&
			has_unowned(watch, group, &metadata->topics[i]);
	return found;
}

static bool is_timed_out(rd_kafka_event_t *event)
{
	size_t count = 0;
	bool timed_out = rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__TIMED_OUT;
	const rd_kafka_ConsumerGroupDescription_t **groups =
	    rd_kafka_DescribeConsumerGroups_result_groups(
		rd_kafka_event_DescribeConsumerGroups_result(event), &count);

	for (size_t i = 0; i < count; i++) {
		const rd_kafka_error_t *error = rd_kafka_ConsumerGroupDescription_error(groups[i]);

		timed_out |= rd_kafka_error_code(error) == RD_KAFKA_RESP_ERR__TIMED_OUT;
	}
	return timed_out;
}

/* The group as it is between two rebalances; NULL: there is no such answer now. */
static const rd_kafka_ConsumerGroupDescription_t *stable_group(rd_kafka_event_t *event)
{
	size_t count = 0;

	if (rd_kafka_event_error(event))
		return NULL;
	const rd_kafka_ConsumerGroupDescription_t **groups =
	    rd_kafka_DescribeConsumerGroups_result_groups(
		rd_kafka_event_DescribeConsumerGroups_result(event), &count);
	/* In other states the members have no assignments yet. */
	bool stable = count == 1 && !rd_kafka_ConsumerGroupDescription_error(groups[0]) &&
		      rd_kafka_ConsumerGroupDescription_state(groups[0]) ==
			  RD_KAFKA_CONSUMER_GROUP_STATE_STABLE;
	return stable ? groups[0] : NULL;
}

static bool find_unowned_partition(struct unowned_watch *watch)
{
	if (!watch->asked && clock_ms() >= watch->look_at)
		describe_group(watch);
	rd_kafka_event_t *event = watch->asked ? rd_kafka_queue_poll(watch->answers, 0) : NULL;
	if (!event)
		return false;

	const rd_kafka_ConsumerGroupDescription_t *group =
	    watch->outdated ? NULL : stable_group(event);
	bool found = group && compare_assignments(watch, group);
	if (group && !found)
		backoff_reset(&watch->pause);
	if (group)
		watch->pause_ms = backoff_next_ms(&watch->pause);
	/* The assignment after the last rebalance has set the time of the next look. */
	if (!watch->outdated)
		watch->look_at = clock_ms() + PAUSE_MS;
	watch->asked = watch->outdated = false;
	watch->stale |= is_timed_out(event);
	rd_kafka_event_destroy(event);
	return found;
}

bool unowned_watch_is_stale(const struct unowned_watch *watch)
{
	return watch->stale;
}

bool unowned_watch_step(struct unowned_watch *watch, struct err *err)
{
	if (!find_unowned_partition(watch))
		return true;
	/* Without this call a subscription to the same topics does not leave the group, and a
	 * member that joins again without a change gets its old partitions. */
	rd_kafka_unsubscribe(watch->handle);
	rd_kafka_resp_err_t code = rd_kafka_subscribe(watch->handle, watch->topics);
	return !code || kafka_client_failed(err, code, "the topics");
}
