#pragma once
/*
 * The rules of docs/examples/alerts.yml, as far as the metrics of one process show them: so an
 * operator sees in the console what Prometheus would say, with the same names and words. One call
 * of alarms_take a second reads the metrics; any thread may read the result. Internal to
 * relay/admin.
 *
 * A rule about all processes (OutboxNoRelay, OutboxPublisherWithoutOwner) cannot be judged here.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct alarms;

struct alarms *alarms_create(void);
void alarms_destroy(struct alarms *alarms); /* NULL is fine */

/* An alarm that began to fire, or was over. `alarm` is as in alarms_json, "state" among it. */
typedef void alarms_change(
    json_t *alarm, const char *publisher, const char *section, void *context);
/*
 * Reads the metrics as of `now_us`, microseconds since 1970, and calls `change` (NULL: nobody) for
 * each alarm that began to fire or was over since the previous call; it borrows the alarm.
 */
void alarms_take(struct alarms *alarms, int64_t now_us, alarms_change *change, void *context);

/* May the caller see an alarm with these labels? NULL: it has no such label. */
typedef bool alarms_scope(const char *publisher, const char *section, void *context);
/*
 * [{"alert", "severity", "state", "since", "labels", "value", "text"}], the critical ones first.
 * "pending": true for less time than the rule wants.
 */
json_t *alarms_json(struct alarms *alarms, alarms_scope *is_in_scope, void *context);
/* One more of the same form, for an alert that the caller found. labels: taken over. */
json_t *alarm_json(const char *name, const char *severity, int64_t since_us, json_t *labels,
    double value, const char *text);
