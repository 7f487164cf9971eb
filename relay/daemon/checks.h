#pragma once
/*
 * Every check of `doctor`, over a whole configuration; `run` makes the same checks at its start.
 * Blocking.
 */
#include "topic_metadata.h"
#include "config.h"
#include "preflight.h"

/* A publisher of the configuration as its database knows it. */
struct checks_publisher {
	const struct config_publisher *section;
	int shards;            /* 0: the database was not asked or does not know it */
	int64_t oldest_age_ms; /* age of the oldest unpublished row; 0: none */
	char **topics;         /* topics of its messages, as far as known */
	int topic_count;
};

struct checks {
	const struct config *config;
	bool starting; /* for `run`: a problem of one publisher alone is no failure */
	struct preflight report;
	struct checks_publisher *publishers; /* as many as config->publishers, in the same order */
};

void checks_init(struct checks *checks, const struct config *config);
void checks_finish(struct checks *checks);

/*
 * The server, the schema, and the publishers that read from it. False: the server cannot be queried
 * (no answer within 10 s, a wrong password …).
 */
bool checks_postgres(
    struct checks *checks, const struct postgres_settings *postgres, struct err *err) MUST_CHECK;

/* Checks the brokers. False: none answers within 5 s. */
bool checks_kafka(struct checks *checks, const struct kafka_settings *kafka,
    struct topic_metadata *metadata, struct err *err) MUST_CHECK;
/* The topics of the publishers that publish there, as far as checks_postgres found them. */
bool checks_topics(struct checks *checks, const struct kafka_settings *kafka,
    struct topic_metadata *metadata, struct err *err) MUST_CHECK;

/*
 * Checks that the topics of publishers with resume = tail may be read: for doctor only, since `run`
 * finds this out itself.
 */
void checks_tails(struct checks *checks, const struct kafka_settings *kafka);

/* strict if one of the publishers that publish there is. */
enum safety checks_safety(const struct config *config, const struct kafka_settings *kafka);

/* False: one of the findings from `first` on is fatal; *err holds it as a line. */
bool checks_verdict(
    const struct checks *checks, int first, enum safety safety, struct err *err) MUST_CHECK;
