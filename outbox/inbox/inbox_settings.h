#pragma once
/* The settings of an inbox: checked, copied, and with the values that are derived from them. */
#include "dedup_stores.h"
#include "inbox.h"
#include "kafka_settings.h"
#include "rule_key.h"

/* Where the id of a message is; the frequent places are read without a copy. */
enum id_place { ID_HEADER, ID_KEY, ID_PAYLOAD, ID_EXPRESSION };

struct inbox_settings {
	struct outbox_inbox_settings given; /* its texts and lists are copies, its 0s defaults */
	struct kafka_settings kafka;
	char **topics; /* with the retry topics, NULL-ended */
	int retry_count;
	bool *told; /* by topic: a message without an id was logged. For the loop only */
	/* dedup; NULL line: none */
	struct dedup_spec spec;
	bool by_position; /* the store goes by outbox-position, not by ids: sequence */
	bool local;       /* each partition has a store in its own folder */
	enum id_place id_place;
	const char *id_header;
	struct rule_key *id_key;
	size_t rule_count;
};

/* Could the settings have these lines as rules? NULL-ended, as the others; NULL: none. */
bool inbox_settings_check_rules(
    const struct inbox_settings *settings, const char *const *rules, struct err *err) MUST_CHECK;
char **inbox_settings_copy_rules(const char *const *rules);
void inbox_settings_free_rules(char **rules); /* NULL is fine */
/* Replaces the lines; the settings own them then. */
void inbox_settings_take_rules(struct inbox_settings *settings, char **rules);

/* Do the records of the rules lie in the folders of the partitions? False also without rules. */
bool inbox_settings_local_rules(const struct inbox_settings *settings);

struct inbox_settings *inbox_settings_create(
    const struct outbox_inbox_settings *given, struct err *err);
void inbox_settings_destroy(struct inbox_settings *settings); /* NULL is fine */

/* The number of a topic in `topics`; -1: it is not in the list. */
int inbox_settings_topic(const struct inbox_settings *settings, const char *topic);
/* The number of a retry topic, from 0; -1: it is not a retry topic. */
int inbox_settings_retry_of(const struct inbox_settings *settings, const char *topic);
