/* Keeps the figures of the dedup stores, and logs the alarms of their filters. */
#include "loop_private.h"

#include "cleanup.h"
#include "logging.h"
#include "text.h"

/* A store and the partition whose ids it has; NULL: the store of all partitions. */
struct noted_store {
	struct inbox_partition_store *store;
	const struct inbox_partition *assigned;
	struct outbox_dedup_stats stats;
};

static const char *topic_of_store(const struct noted_store *noted)
{
	return noted->assigned ? noted->assigned->topic : "all";
}

static int64_t partition_of_store(const struct noted_store *noted)
{
	return noted->assigned ? noted->assigned->partition : -1;
}

/* Logs once that more ids came than planned. */
static void log_overfilled(const struct loop *loop, const struct noted_store *noted)
{
	bool grown = noted->stats.sub_slices > 0;
	bool *told = &noted->store->told.overfilled;

	if (grown && !*told)
		log_warn("inbox_filter_overfilled",
		    {"group", LOG_TEXT(loop->settings->given.group)},
		    {"topic", LOG_TEXT(topic_of_store(noted))},
		    {"partition", LOG_INT(partition_of_store(noted))},
		    {"ids", LOG_INT((int64_t)noted->stats.ids)},
		    {"sub_slices", LOG_INT(noted->stats.sub_slices)},
		    {"cure",
			LOG_TEXT("raise ids in the dedup line: more ids came than it plans for; "
				 "answers stay right, and cost more memory and lookups")});
	*told = grown;
}

/* Logs an alarm also if a checkpoint has ended it already. */
static void log_filter_alarm(struct loop *loop, const struct noted_store *noted)
{
	const struct outbox_dedup_stats *stats = &noted->stats;
	owned_text char *observed = xformat("%.3g%%", stats->alarm_rate * 100);
	owned_text char *planned = xformat("%.3g%%", stats->planned_rate * 100);

	loop->stats.dedup_alarms_total += stats->alarms - noted->store->told.alarms;
	noted->store->told.alarms = stats->alarms;
	noted->store->told.alarm = true;
	log_warn("inbox_filter_alarm", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"topic", LOG_TEXT(topic_of_store(noted))},
	    {"partition", LOG_INT(partition_of_store(noted))}, {"observed", LOG_TEXT(observed)},
	    {"planned", LOG_TEXT(planned)}, {"repairs", LOG_INT((int64_t)stats->repairs)},
	    {"cure",
		LOG_TEXT("the store makes its filter anew from its log; if the alarm lasts or "
			 "comes again, raise ids or alarm in the dedup line, and find damage with "
			 "outbox-relay dedup verify; answers stay right, and cost more")});
}

static void log_filter_state(struct loop *loop, const struct noted_store *noted)
{
	const struct outbox_dedup_stats *stats = &noted->stats;
	owned_text char *observed = xformat("%.3g%%", stats->observed_rate * 100);

	log_overfilled(loop, noted);
	if (stats->alarms > noted->store->told.alarms)
		log_filter_alarm(loop, noted);
	if (stats->alarm || !noted->store->told.alarm)
		return;

	noted->store->told.alarm = false;
	log_info("inbox_filter_relieved", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"topic", LOG_TEXT(topic_of_store(noted))},
	    {"partition", LOG_INT(partition_of_store(noted))}, {"observed", LOG_TEXT(observed)},
	    {"repairs", LOG_INT((int64_t)stats->repairs)});
}

void loop_note_store(
    struct loop *loop, struct inbox_partition_store *store, struct inbox_partition *assigned)
{
	struct outbox_inbox_stats *stats = &loop->stats;
	struct noted_store noted = {store, assigned};
	const struct outbox_dedup_stats *one = &noted.stats;
	if (!store->dedup)
		return;

	outbox_dedup_stats(store->dedup, &noted.stats);
	stats->filter_hits += one->filter_hits;
	stats->false_hits += one->false_hits;
	stats->sub_slices += one->sub_slices;
	stats->dedup_memory_bytes += one->memory_bytes;
	stats->dedup_disk_bytes += one->disk_bytes;
	stats->dedup_alarms += one->alarm;
	if (one->observed_rate > stats->observed_rate)
		stats->observed_rate = one->observed_rate;
	log_filter_state(loop, &noted);

	/* the checkpoint of a commit repairs: one more is needed though no message comes */
	if (one->repairing && assigned)
		assigned->changed = true;
}
