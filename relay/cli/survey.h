#pragma once
/*
 * What `status` knows: read from each database, and, when there is one, from the admin endpoint of
 * the relay with this configuration. Kafka is not asked.
 */
#include "config.h"
#include "partitions.h"

/* One shard of a publisher. */
struct survey_shard {
	char *publisher, *owner; /* owner "" : nobody's lease runs */
	bool elsewhere; /* its rows were carried here from another cluster: not published */
	int shard, shards, split_to; /* split_to 0: no split under way */
	int64_t n, epoch, lease_left_ms, windows;
	int64_t unpublished; /* counted; when `more`, there are more */
	bool more;
	int64_t estimated; /* of unpublished, by ids; the same when all were counted */
	int64_t oldest_age_ms, newest_id;
	double rate; /* published per second since the survey before; below 0: unknown */
};

/* Parked rows of a publisher by state; beyond a bound the last ones are not counted. */
struct survey_parked {
	char *publisher;
	int64_t waiting, dead, stalled, free, behind;
	bool more;
	int64_t oldest_age_ms; /* 0: none is parked */
};

struct survey_scheduled {
	char *publisher;
	int64_t rows;
	bool more;
	int64_t late_ms, next_ms; /* of the first of them */
};

/* What is undecided and late, and the conflicts that are remembered. */
struct survey_lookback {
	char *section, *type;
	int64_t overdue, parked, conflicts;
	int64_t unprepared;    /* decisions whose prepare never came */
	int64_t oldest_age_ms; /* since its prepare; 0: there is none */
};

struct survey_partition {
	char *name;
	bool
	    bounded; /* false: the default one of its table, or one without a beginning or an end */
	int64_t from_us, to_us, bytes, rows;
};

struct survey_postgres {
	const struct config_postgres *section;
	char *place;     /* "host:port/db"; "" when it does not answer */
	char *error;     /* "" or why nothing more is known */
	int exit_status; /* of that error */
	struct survey_shard *shards;
	int shard_count;
	struct survey_parked *parked; /* one for each publisher */
	int parked_count;
	struct survey_scheduled *scheduled; /* the same */
	int scheduled_count;
	struct survey_lookback *lookbacks; /* by section and type */
	int lookback_count;
	struct survey_partition *partitions; /* of all partition_tables */
	int partition_count;
	int64_t default_rows[PARTITION_TABLES];
	char *ids_problem; /* problem of the sequence of message.id, with the cure; NULL: none */
};

struct survey {
	const struct config *config;
	int64_t taken_ms, taken_wall_us;
	struct survey_postgres *databases;
	int count;
	/* of the admin endpoint */
	int admin_status;     /* HTTP; 0: none is configured, or it does not answer */
	char *admin_report;   /* its checks, line by line; or why it does not answer; "" */
	char *admin_lookback; /* samples of its metrics of the look-back, line by line; "" */
	char *admin_deliver;  /* of its sections that deliver */
};

/* Never fails as a whole: each database says for itself. config must outlive it. */
void survey_take(struct survey *survey, const struct config *config);
/* Rates from the survey before. */
void survey_compare(struct survey *survey, const struct survey *before);
void survey_finish(struct survey *survey);

void survey_print(const struct survey *survey, struct text *out);
/* One JSON object, one line; 64-bit numbers as strings. */
void survey_print_json(const struct survey *survey, struct text *out);
