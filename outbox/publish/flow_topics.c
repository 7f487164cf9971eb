/*
 * Destinations: what the log, the broker and the records say of topics. A topic's partition count
 * must stand in the log before the first record flows to it, and a changed count takes effect with
 * a new epoch once nothing is under way: until then no record goes out.
 */
#include <stdlib.h>
#include <string.h>

#include "flow_private.h"

/* What a log can say; Kafka's own bound is far lower. */
enum { PARTITIONS_MAX = 1 << 20 };

struct topic *flow_topic_find(struct flow *flow, const char *name, size_t length)
{
	struct topic *topic;
	if (flow->last_topic && strlen(flow->last_topic->name) == length &&
	    memcmp(flow->last_topic->name, name, length) == 0)
		return flow->last_topic;
	HASH_FIND(hh, flow->topics, name, length, topic);
	if (!topic) {
		topic = xcalloc(1, sizeof *topic);
		topic->name = xformat("%.*s", (int)length, name);
		topic->index = flow->topic_count;
		if (flow->parking.policy)
			topic->policy = flow->parking.policy(flow->parking.context, topic->name);
		HASH_ADD_KEYPTR(hh, flow->topics, topic->name, length, topic);
		flow->topic_list = xrealloc(
		    flow->topic_list, (size_t)(flow->topic_count + 1) * sizeof *flow->topic_list);
		flow->topic_list[flow->topic_count++] = topic;
	}
	flow->last_topic = topic;
	return topic;
}

static void make_lanes(struct flow *flow, struct topic *topic, int32_t count)
{
	int32_t before = topic->lane_count;
	if (count <= before)
		return;
	topic->lanes = xrealloc(topic->lanes, (size_t)count * sizeof *topic->lanes);
	topic->lane_count = count;
	for (int32_t p = before; p < count; p++)
		topic->lanes[p] = (struct lane){.topic = topic,
		    .partition = p,
		    .fresh = true,
		    .offset = OFFSET_NONE,
		    .logging_offset = OFFSET_NONE,
		    .logged_offset = OFFSET_NONE,
		    .known = OFFSET_NONE,
		    .tail = LANE_OPEN,
		    .first_tail = true};
	flow_tails_begin(flow, topic, before);
}

/* What is known of the partitions that were there before stays. */
static void set_count(struct flow *flow, struct topic *topic, int32_t count)
{
	topic->count = count;
	make_lanes(flow, topic, count);
}

static void topic_becomes(struct flow *flow, struct topic *topic, enum topic_state state)
{
	flow->unready += (state == TOPIC_NEW || state == TOPIC_CHANGED) -
			 (topic->state == TOPIC_NEW || topic->state == TOPIC_CHANGED);
	if (topic->state == TOPIC_ASKED && state != TOPIC_ASKED)
		flow_tails_begin(flow, topic, 0);
	topic->state = state;
	if (state == TOPIC_READY) {
		flow_topic_recovers(flow, topic);
		flow_release_held(flow, topic);
	}
}

/* What follows from the logged and the known count. */
static void topic_settle(struct flow *flow, struct topic *topic)
{
	if (topic->known == 0)
		topic_becomes(flow, topic, TOPIC_ASKED);
	else if (topic->count == 0)
		topic_becomes(flow, topic, TOPIC_NEW);
	else if (topic->count != topic->known)
		topic_becomes(flow, topic, TOPIC_CHANGED);
	else
		topic_becomes(flow, topic, TOPIC_READY);
}

void flow_topics_forget(struct flow *flow)
{
	flow->changing = flow->recreated = false;
	for (int i = 0; i < flow->topic_count; i++) {
		struct topic *topic = flow->topic_list[i];
		flow_denial_forget(flow, topic);
		for (int32_t p = 0; p < topic->lane_count; p++)
			flow_tail_close(flow, &topic->lanes[p]);
		free(topic->lanes);
		topic->lanes = NULL;
		topic->lane_count = topic->count = topic->logging = 0;
		topic_settle(flow, topic);
	}
}

void flow_topics_destroy(struct flow *flow)
{
	flow_topics_forget(flow);
	for (int i = 0; i < flow->topic_count; i++) {
		struct topic *topic = flow->topic_list[i];
		HASH_DEL(flow->topics, topic);
		free(topic->name);
		free(topic);
	}
	free(flow->topic_list);
}

void flow_destination(struct flow *flow, const char *name, int32_t partitions)
{
	struct topic *topic = flow_topic_find(flow, name, strlen(name));
	if (partitions > 0)
		set_count(flow, topic, partitions);
	topic_settle(flow, topic);
}

void flow_destination_offset(struct flow *flow, const char *name, int32_t partition, int64_t offset)
{
	struct topic *topic = flow_topic_find(flow, name, strlen(name));
	if (partition < 0 || partition >= PARTITIONS_MAX)
		return;
	make_lanes(flow, topic, partition + 1);
	struct lane *lane = &topic->lanes[partition];
	lane->offset = lane->logging_offset = lane->logged_offset = lane->known = offset;
}

void flow_topic(struct flow *flow, const char *name, int32_t partitions)
{
	struct topic *topic = flow_topic_find(flow, name, strlen(name));
	if (topic->known == partitions && (topic->missing || topic->state != TOPIC_ASKED))
		return;
	topic->known = partitions;
	topic->missing = partitions == 0;
	topic_settle(flow, topic);
}

struct lane *flow_lane(struct flow *flow, const char *name, int32_t partition)
{
	struct topic *topic = flow_topic_find(flow, name, strlen(name));
	return partition >= 0 && partition < topic->lane_count ? &topic->lanes[partition] : NULL;
}

const char *flow_topic_name(
    const struct flow *flow, int index, bool *ret_ready, int32_t *ret_partitions)
{
	if (index >= flow->topic_count)
		return NULL;
	*ret_ready = flow->topic_list[index]->state == TOPIC_READY;
	*ret_partitions = flow->topic_list[index]->count;
	return flow->topic_list[index]->name;
}

const char *flow_missing_topic(const struct flow *flow)
{
	for (int i = 0; i < flow->topic_count; i++) {
		const struct topic *topic = flow->topic_list[i];
		if (topic->state == TOPIC_ASKED && (topic->held.head || topic->wait.owed))
			return topic->name;
	}
	return NULL;
}

static bool has_topic(const struct flow *flow, enum topic_state state)
{
	for (int i = 0; flow->unready && i < flow->topic_count; i++)
		if (flow->topic_list[i]->state == state)
			return true;
	return false;
}

bool flow_has_new_topics(const struct flow *flow)
{
	return has_topic(flow, TOPIC_NEW);
}

bool flow_has_changed_topics(const struct flow *flow)
{
	return has_topic(flow, TOPIC_CHANGED);
}

/* Topic names hold only letters, digits, dots, dashes and underscores: nothing to escape. */
static void topic_json(struct topic *topic, struct text *json)
{
	bool begun = topic->logging;
	int32_t count = topic->logging ? topic->logging : topic->count;
	if (topic->logging)
		text_addf(json, "%s\"%s\":[%d,{", json->length > 1 ? "," : "", topic->name, count);
	bool first = true;
	for (int32_t p = 0; p < topic->count && topic->count == count; p++) {
		struct lane *lane = &topic->lanes[p];
		int64_t offset = flow_tail_offset(lane);
		if (offset == lane->logged_offset)
			continue;
		if (!begun)
			text_addf(json, "%s\"%s\":[%d,{", json->length > 1 ? "," : "", topic->name,
			    count);
		begun = true;
		text_addf(json, "%s\"%d\":%lld", first ? "" : ",", p, (long long)offset);
		lane->logging_offset = offset;
		first = false;
	}
	if (begun)
		text_add(json, "}]");
}

void flow_destinations(struct flow *flow, bool changed, struct text *ret_json)
{
	text_add(ret_json, "{");
	for (int i = 0; i < flow->topic_count; i++) {
		struct topic *topic = flow->topic_list[i];
		bool counts =
		    topic->state == TOPIC_NEW || (changed && topic->state == TOPIC_CHANGED);
		topic->logging = counts ? topic->known : 0;
		flow->changing |= topic->logging && topic->count;
		topic_json(topic, ret_json);
	}
	text_add(ret_json, "}");
}

static void lanes_logged(struct flow *flow, struct topic *topic, bool written)
{
	for (int32_t p = 0; p < topic->lane_count; p++) {
		struct lane *lane = &topic->lanes[p];
		if (!written) {
			lane->logging_offset = lane->logged_offset;
			continue;
		}
		lane->logged_offset = lane->logging_offset;
		flow_tail_logged(flow, lane);
	}
}

void flow_logged(struct flow *flow, bool written)
{
	flow->changing = false;
	flow_parks_logged(flow, written);
	for (int i = 0; i < flow->topic_count; i++) {
		struct topic *topic = flow->topic_list[i];
		int32_t count = written ? topic->logging : 0;
		topic->logging = 0;
		lanes_logged(flow, topic, written);
		if (count == 0)
			continue;
		if (topic->count) /* nothing is under way: what is held finds its new lane */
			flow_producer_lost(flow);
		set_count(flow, topic, count);
		topic_settle(flow, topic);
	}
}
