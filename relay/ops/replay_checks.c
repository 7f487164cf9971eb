#include "replay_checks.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "logging.h"

enum { ANSWER_MS = 10000, LOOK_MS = 20, AGE_MS = 60000 };

static bool look_up_topic(struct topic_metadata *metadata, const char *name,
    struct known_topic *ret_topic, struct err *err)
{
	int64_t until = clock_ms() + ANSWER_MS;

	do {
		*ret_topic = topic_metadata_get(metadata, name, AGE_MS);
		if (ret_topic->state == TOPIC_THERE)
			return true;
		if (ret_topic->state == TOPIC_MISSING)
			return err_set(err, ERR_REJECT,
			    "topic %s does not exist in Kafka: create it, or choose another "
			    "target (`to`)",
			    name);
		/* the look-up runs in the background, and has no answer yet */
		poll(NULL, 0, LOOK_MS);
	} while (clock_ms() < until);
	return err_set(err, ERR_RETRY,
	    "topic %s: Kafka gives no answer within 10 s%s%s; are its "
	    "brokers up, and is bootstrap.servers right?",
	    name, ret_topic->error[0] ? ": " : "", ret_topic->error);
}

static const char *setting_value(const struct topic_setting *settings, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (text_equal(settings[i].name, name))
			return settings[i].value ? settings[i].value : "";
	return "";
}

/* A missing answer does not stop the replay: the check only warns. */
static void check_retention(
    struct topic_metadata *metadata, const char *name, int64_t oldest_ms, int64_t now_ms)
{
	struct topic_setting *settings;
	struct err err;
	int64_t retention_ms;
	int count;

	if (!topic_metadata_settings(metadata, name, ANSWER_MS, &settings, &count, &err))
		return;

	/* a broker that sets timestamps itself, or only compacts, does not delete by the row's
	 * age */
	if (strstr(setting_value(settings, count, "cleanup.policy"), "delete") &&
	    text_equal(setting_value(settings, count, "message.timestamp.type"), "CreateTime") &&
	    text_to_int64(
		setting_value(settings, count, "retention.ms"), 0, INT64_MAX, &retention_ms) &&
	    now_ms - oldest_ms > retention_ms)
		log_warn("replay_older_than_retention", {"topic", LOG_TEXT(name)},
		    {"oldest_row_s", LOG_INT((now_ms - oldest_ms) / 1000)},
		    {"retention_s", LOG_INT(retention_ms / 1000)},
		    {"meaning", LOG_TEXT("Kafka may delete such records at once")},
		    {"cure",
			LOG_TEXT("raise retention.ms, or set [publisher] timestamp = publish")});
	topic_metadata_settings_free(settings, count);
}

static bool check_replay_topic(const struct replay *replay, const char *name, int32_t partition,
    int64_t oldest_ms, int64_t now_ms, struct topic_metadata *metadata, struct err *err)
{
	struct known_topic topic;
	owned_text char *why = replay->publisher->refused_topic(replay->publisher->context, name);

	if (why)
		return err_set(err, ERR_REJECT,
		    "topic %s: %s; choose the rows of another topic, or another target (`to`)",
		    name, why);
	if (!look_up_topic(metadata, name, &topic, err))
		return false;

	/* checked before the first record goes out: later the replay would end half way */
	if (partition >= topic.partitions)
		return err_set(err, ERR_REJECT,
		    "rows ask for partition %d, and topic %s has %d: choose another target (`to`)",
		    partition, name, topic.partitions);
	if (replay->publisher->timestamp == TIMESTAMP_CREATED)
		check_retention(metadata, name, oldest_ms, now_ms);
	return true;
}

bool replay_check_topics(const struct replay *replay, const struct replay_plan *plan,
    struct topic_metadata *metadata, struct err *err)
{
	int64_t oldest_ms = INT64_MAX;
	int32_t partition = -1;

	for (int i = 0; i < plan->count; i++) {
		const struct replay_topic *topic = &plan->topics[i];

		/* with a target, only that one topic is checked, for the largest partition and
		 * the oldest row */
		if (!replay->target && !check_replay_topic(replay, topic->name, topic->partition,
					   topic->oldest_ms, plan->now_ms, metadata, err))
			return false;
		oldest_ms = topic->oldest_ms < oldest_ms ? topic->oldest_ms : oldest_ms;
		partition = topic->partition > partition ? topic->partition : partition;
	}
	return !replay->target || check_replay_topic(replay, replay->target, partition, oldest_ms,
				      plan->now_ms, metadata, err);
}
