#pragma once
/*
 * Pre-flight: checks the server, the cluster and the topics before publishing, and reports findings
 * that name the place, the problem and the cure. Used by doctor, at start, and for each topic at
 * its first use (topic_checks.h). Blocking; any thread may call, and a report belongs to one thread
 * at a time.
 */
#include "topic_metadata.h"
#include "publisher_settings.h"
#include "pg.h"

enum preflight_severity {
	PREFLIGHT_OK,
	PREFLIGHT_INFO,   /* worth knowing */
	PREFLIGHT_WARN,   /* works, with a risk that the operator must weigh */
	PREFLIGHT_UNSAFE, /* the cluster can lose acknowledged records: fatal with safety=strict */
	PREFLIGHT_FAIL,   /* cannot work */
};
extern const char *const preflight_severity_names[];

struct preflight_finding {
	enum preflight_severity severity;
	enum err_kind
	    kind;    /* of a failure: determines the exit status; ERR_CONFIG unless changed */
	char *place; /* "postgres main", "kafka main", "topic orders" */
	char *what;
	char *cure; /* "" if there is nothing to do */
	/*
	 * cure_of_all: the cure for several such findings, with "{}" for the list of their items;
	 * "": `cure` serves all findings that have the same one. item: a topic, a folder; "": none.
	 */
	char *cure_of_all, *item;
};

/* {0} is an empty report. */
struct preflight {
	struct preflight_finding *findings;
	int count;
};
void preflight_finish(struct preflight *report);
/* Adds a finding, which the report owns; cure may be NULL. */
struct preflight_finding *preflight_add(struct preflight *report, enum preflight_severity severity,
    const char *place, const char *cure, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Copies both texts. */
void preflight_set_item(
    struct preflight_finding *finding, const char *cure_of_all, const char *item);
/* Logs each finding in one line; findings that need no attention at debug level. */
void preflight_log(const struct preflight *report);
/* Does a finding of this severity end `run` with that safety? */
bool preflight_is_fatal(enum preflight_severity severity, enum safety safety);

/*
 * Checks the version, role, privileges, row security, the sequence's CACHE, partitions ahead,
 * pooling, primary or standby, several hosts.
 * False: the server does not answer; the report has the findings until then. *ret_usable: the
 * schema exists and is readable, so that its tables can be queried.
 */
bool preflight_postgres(struct preflight *report, struct pg *pg,
    const struct postgres_settings *postgres, bool *ret_usable, struct err *err) MUST_CHECK;

/* Counts the brokers. False: no broker answered. */
bool preflight_cluster(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, int timeout_ms, struct err *err) MUST_CHECK;

/*
 * Checks one topic: existence, replication, min.insync.replicas, unclean elections, flushing,
 * compaction, sizes, and retention and timestamps against the age of the oldest waiting row,
 * oldest_age_ms (0: none). A missing topic is a finding. False: no broker answered.
 */
bool preflight_topic(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, const char *topic, int64_t oldest_age_ms, int timeout_ms,
    struct err *err) MUST_CHECK;

/*
 * Checks that each partition has a leader. A missing topic is not a finding. False: no broker
 * answered.
 */
bool preflight_leaders(struct preflight *report, struct topic_metadata *metadata, const char *topic,
    int timeout_ms, struct err *err) MUST_CHECK;

/* Checks that a topic exists which is only read. False: no broker answered. */
bool preflight_topic_exists(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, const char *topic, int timeout_ms,
    struct err *err) MUST_CHECK;

/*
 * The checks of preflight_topic on known settings: no I/O. The settings include
 * "replication.factor".
 */
void preflight_topic_settings(struct preflight *report, const struct kafka_settings *kafka,
    const char *topic, const struct topic_setting *settings, int count, int64_t oldest_age_ms);

/* Checks that the ends of these topics can be read, as resume = tail does. Reports only failures.
 */
void preflight_tails(struct preflight *report, const struct kafka_settings *kafka,
    const char *const *topics, int count, int timeout_ms);
