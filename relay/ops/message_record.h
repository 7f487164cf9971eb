#pragma once
/*
 * Finds the records of messages in Kafka: completes what message_find says from the database.
 * Blocking.
 */
#include <jansson.h>
#include "config.h"

/* Has the answer of message_find a record that can be searched? */
bool message_record_is_wanted(const json_t *answer);

/*
 * Searches the records of the answer, and the dead letters of these [deliver] sections of the
 * configuration (count 0: all), for `ms` at most. A record that is not found says why; nothing
 * fails.
 */
void message_record_search(
    const struct config *config, const struct config_list *sections, json_t *answer, int64_t ms);

/* Says of every record that it was not searched: state "busy", with the detail. */
void message_record_leave(json_t *answer, const char *detail);
