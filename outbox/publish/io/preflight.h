#pragma once
/*
 * Pre-flight: what can be known before publishing about the server, the cluster and the topics, as
 * findings that name the place, what is wrong and the cure. Used by doctor, at start, and for each
 * topic at its first use (topic_checks.h). Blocking; any thread, a report belongs to one at a time.
 */
#include "topic_metadata.h"
#include "publisher_settings.h"
#include "pg.h"

enum preflight_severity {
	PREFLIGHT_OK,
	PREFLIGHT_INFO,   /* worth knowing */
	PREFLIGHT_WARN,   /* works, with a risk that is the operator's to weigh */
	PREFLIGHT_UNSAFE, /* the cluster can lose acknowledged records: fatal with safety = strict
			   */
	PREFLIGHT_FAIL,   /* cannot work */
};
extern const char *const preflight_severity_names[];

struct preflight_finding {
	enum preflight_severity severity;
	enum err_kind
	    kind;    /* of a failure: what the program ends with; ERR_CONFIG unless changed */
	char *place; /* "postgres main", "kafka main", "topic orders" */
	char *what;
	char *cure; /* "" when there is nothing to do */
	/*
	 * The cure for several such findings, with "{}" for the list of their items; "": the cure
	 * itself is for all that have the same. The item: a topic, a folder; "": none.
	 */
	char *cure_of_all, *item;
};

/* {0} is an empty report. */
struct preflight {
	struct preflight_finding *findings;
	int count;
};
void preflight_finish(struct preflight *report);
/* Owned by the report; cure may be NULL. */
struct preflight_finding *preflight_add(struct preflight *report, enum preflight_severity severity,
    const char *place, const char *cure, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Copies both texts. */
void preflight_set_item(
    struct preflight_finding *finding, const char *cure_of_all, const char *item);
/* Logs the findings that want attention (the others at debug level), one line each. */
void preflight_log(const struct preflight *report);
/* Does this finding end `run` under that safety? */
bool preflight_is_fatal(enum preflight_severity severity, enum safety safety);

/*
 * Version, role, privileges, row security, the sequence's CACHE, partitions ahead, pooling, primary
 * or standby, several hosts.
 * False: the server does not answer; what was found until then is in the report. *ret_usable: the
 * schema is there and readable, so that its tables can be asked.
 */
bool preflight_postgres(struct preflight *report, struct pg *pg,
    const struct postgres_settings *postgres, bool *ret_usable, struct err *err) MUST_CHECK;

/* Brokers that answer. False: none. */
bool preflight_cluster(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, int timeout_ms, struct err *err) MUST_CHECK;

/*
 * One topic: existence, replication, min.insync.replicas, unclean elections, flushing, compaction,
 * sizes, retention and timestamps against rows that wait since oldest_age_ms (0: none). A missing
 * topic is a finding. False: no broker answered.
 */
bool preflight_topic(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, const char *topic, int64_t oldest_age_ms, int timeout_ms,
    struct err *err) MUST_CHECK;

/* Whether each partition has a leader. A missing topic is no finding. False: no broker answered. */
bool preflight_leaders(struct preflight *report, struct topic_metadata *metadata, const char *topic,
    int timeout_ms, struct err *err) MUST_CHECK;

/* Whether a topic exists that is only read. False: no broker answered. */
bool preflight_topic_exists(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, const char *topic, int timeout_ms,
    struct err *err) MUST_CHECK;

/*
 * The judgement of preflight_topic on settings that are known: no I/O. settings come with
 * "replication.factor".
 */
void preflight_topic_settings(struct preflight *report, const struct kafka_settings *kafka,
    const char *topic, const struct topic_setting *settings, int count, int64_t oldest_age_ms);

/* May the ends of these topics be read, as resume = tail does? Only what is wrong is a finding. */
void preflight_tails(struct preflight *report, const struct kafka_settings *kafka,
    const char *const *topics, int count, int timeout_ms);
