#pragma once
/*
 * The checks of [lookback] and [check] sections, for `doctor`: whether the database and the cluster
 * have everything that they need, and whether their settings can work. Blocking.
 */
#include "checks.h"

/* Who publishes what the sections of that database commit? After checks_postgres. */
void checks_lookback_publishers(struct checks *checks, const struct postgres_settings *postgres);

/*
 * Reports the undecided prepares of that database, and how many were decided lately by messages,
 * answers and operators. After checks_postgres.
 */
void checks_lookback_figures(struct checks *checks, const struct postgres_settings *postgres);

/*
 * The topics that the sections of that cluster read, and those that they write to as far as the
 * configuration names them. After checks_topics.
 */
bool checks_lookback_topics(struct checks *checks, const struct kafka_settings *kafka,
    struct topic_metadata *metadata, struct err *err) MUST_CHECK;

/* The settings of both kinds of sections; a service that is a database is asked for its function.
 */
void checks_lookback_services(struct checks *checks);
