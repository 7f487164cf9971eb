#pragma once
/* The settings of an inbox: checked, copied, and with what follows from them. */
#include "dedup_stores.h"
#include "inbox.h"
#include "kafka_settings.h"
#include "rule_key.h"

/* Where the id of a message is; the frequent places are looked at without a copy. */
enum id_place { ID_HEADER, ID_KEY, ID_PAYLOAD, ID_EXPRESSION };

struct inbox_settings {
	struct outbox_inbox_settings given; /* its texts and lists are copies, its 0s defaults */
	struct kafka_settings kafka;
	char **topics; /* with those of retries, NULL-ended */
	int retry_count;
	bool *told; /* of each: of a message without an id. The loop's */
	/* dedup; NULL line: none */
	struct dedup_spec spec;
	bool by_position; /* the store goes by outbox-position, not by ids: sequence */
	bool local;       /* a store for each partition, in a folder */
	enum id_place id_place;
	const char *id_header;
	struct rule_key *id_key;
	size_t rule_count;
};

struct inbox_settings *inbox_settings_create(
    const struct outbox_inbox_settings *given, struct err *err);
void inbox_settings_destroy(struct inbox_settings *settings); /* NULL is fine */

/* Its number among `topics`; -1: it is none of them. */
int inbox_settings_topic(const struct inbox_settings *settings, const char *topic);
/* The retry topic it is, from 0; -1: none. */
int inbox_settings_retry_of(const struct inbox_settings *settings, const char *topic);
