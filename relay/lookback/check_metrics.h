#pragma once
/*
 * The metrics of a checker, and its log lines about the hosts that it queries. Owned by the
 * checker's thread.
 */
#include "check_calls.h"
#include "config.h"
#include "schedule.h"

struct check_metrics;

struct check_metrics *check_metrics_create(
    const struct config *config, const struct config_lookback *lookback);
void check_metrics_destroy(struct check_metrics *metrics); /* NULL is fine */

void check_metrics_answer(
    struct check_metrics *metrics, int service, const struct check_answer *answer, int id_count);
/* The addresses of a service that has several. */
void check_metrics_addresses(
    struct check_metrics *metrics, int service, const struct transport_addresses *addresses);
/* Shows a host before it was ever asked. */
void check_metrics_host(struct check_metrics *metrics, const char *host);
/*
 * Shows the schedule's figures, and logs each breaker that opened or closed. Returns how many are
 * not closed; *ret_failing is one of those, else {0}.
 */
int check_metrics_note(struct check_metrics *metrics, const struct schedule *schedule, int64_t now,
    struct schedule_host_figures *ret_failing);

/* Figures of a type, as the database has them. */
void check_metrics_type(struct check_metrics *metrics, const struct check_type_figures *figures);
/* Counts the results of a settlement. */
void check_metrics_settled(
    struct check_metrics *metrics, const struct check_settled *settled, int64_t parked);
