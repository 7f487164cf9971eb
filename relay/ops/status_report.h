#pragma once
/*
 * The report of `status`: read from each database and, if one is configured, from the
 * admin endpoint and the API of the relay with this configuration. Kafka is not queried.
 */
#include <jansson.h>
#include "config.h"
#include "partitions.h"
#include "pg.h"

/* One shard of a publisher. */
struct status_shard {
	char *publisher, *owner;  /* owner "": no lease is valid */
	char *url;                /* of the owner's console; "": it advertises none */
	char *paused_at;          /* when an operator paused the publisher; "": it is not paused */
	char *paused_topics;      /* a JSON object: each topic that an operator paused, and when */
	char *paused_topics_text; /* the same for people; "": none */
	char *identity;           /* the first 8 digits of the publisher's identity */
	bool elsewhere; /* its rows were carried here from another cluster: not published */
	char *unknown;  /* why its numbers are unknown: a locked table; "" */
	int shard, shards, split_to; /* split_to 0: no split under way */
	int64_t n, epoch, lease_left_ms, windows;
	int64_t
	    unpublished; /* counted; when `more`, there are more; -1: unknown, as the next are */
	bool more;
	int64_t estimated; /* of unpublished, by ids; the same when all were counted */
	int64_t oldest_age_ms, newest_id;
	double rate; /* published per second since the previous report; below 0: unknown */
};

/* Parked rows of a publisher by state; beyond a bound the last ones are not counted. */
struct status_parked {
	char *publisher;
	int64_t waiting, dead, stalled, paused, free, behind;
	bool more;
	int64_t oldest_age_ms; /* 0: none is parked */
};

struct status_scheduled {
	char *publisher;
	int64_t rows;
	bool more;
	int64_t late_ms, next_ms; /* times of the first row that is due */
};

/* Undecided ids that are late, and the conflicts that are kept. */
struct status_lookback {
	char *section, *type;
	int64_t overdue, parked, conflicts;
	int64_t unprepared;    /* decisions whose prepare never came */
	int64_t oldest_age_ms; /* since its prepare; 0: there is none */
	bool more;             /* counting ended at the bound: the age is of a counted one */
};

struct status_partition {
	char *name;
	bool
	    bounded; /* false: the default one of its table, or one without a beginning or an end */
	int64_t from_us, to_us, bytes, rows; /* rows -1: unknown */
};

struct status_postgres {
	const struct postgres_settings *section;
	const char *publisher; /* only its shards are read; NULL: those of all publishers */
	/*
	 * Maximum number of unpublished rows of a shard, and of parked and scheduled rows of a
	 * publisher, that are counted one by one; 0: 100,000
	 */
	int64_t count_bound;
	char *place;     /* "host:port/db"; "" when it does not answer */
	char *error;     /* why nothing more is known; "" */
	int exit_status; /* of that error */
	struct status_shard *shards;
	int shard_count;
	struct text waits;   /* lines: why messages are parked and ids are undecided */
	struct text unknown; /* lines: the tables whose locks kept numbers from being read */
	/* A list below is NULL if it could not be read. */
	struct status_parked *parked; /* one for each publisher */
	int parked_count;
	struct status_scheduled *scheduled; /* the same */
	int scheduled_count;
	struct status_lookback *lookbacks; /* by section and type */
	int lookback_count;
	struct status_partition *partitions; /* all of each table that could be read */
	int partition_count;
	int64_t default_rows[PARTITION_TABLES]; /* -1: this table could not be read */
	char *ids_problem; /* problem of the sequence of message.id, with the cure; NULL: none */
};

struct status_report {
	const struct config *config;
	int64_t taken_ms, taken_wall_us;
	struct status_postgres *databases;
	int count;
	struct text waits; /* lines: why Kafka takes no message; the caller fills them in */
	json_t *deliver;   /* sections, as GET /v1/deliver has them; NULL: unknown */
	char *deliver_error;
	/* of the admin endpoint */
	int admin_status;     /* HTTP; 0: none is configured, or it does not answer */
	char *admin_report;   /* lines: its checks, or why it does not answer; NULL: no [admin] */
	char *admin_lookback; /* samples of its metrics of the look-back, line by line; "" */
	char *admin_deliver;  /* samples of its metrics of deliver sections */
};

/* Never fails as a whole: each database holds its own error. config must outlive the report. */
void status_report_take(struct status_report *report, const struct config *config);
/* Fills in the rates, from the difference to the previous report. */
void status_report_compare(struct status_report *report, const struct status_report *before);
void status_report_finish(struct status_report *report);

/*
 * Collects the shards, and the parked and scheduled rows, of a database whose section, and maybe
 * publisher, the caller has set. False: the session may be within a transaction that failed.
 */
bool status_publishers_take(
    struct pg *pg, struct status_postgres *database, struct err *err) MUST_CHECK;
/* The same, and the look-back. */
bool status_overview_take(
    struct pg *pg, struct status_postgres *database, struct err *err) MUST_CHECK;
/* NULL: the list could not be read, or has no row of the publisher. */
const struct status_scheduled *status_scheduled_of(
    const struct status_postgres *database, const char *publisher);
void status_postgres_finish(struct status_postgres *database);
