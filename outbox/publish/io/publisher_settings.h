#pragma once
/*
 * The settings of a publisher: its database, its Kafka cluster, and how it publishes. Plain data.
 * The caller fills the struct and owns it, with everything that it points to. It must stay
 * unchanged and alive until the last shard worker of the publisher has ended. Any number of threads
 * may read the struct and call its functions at the same time.
 */
#include "kafka_settings.h"
#include "postgres_settings.h"
#include "stream.h"

enum timestamp_source { TIMESTAMP_CREATED, TIMESTAMP_PUBLISH };
enum safety { SAFETY_WARN, SAFETY_STRICT };
enum delivery_mode { DELIVERY_AT_LEAST_ONCE, DELIVERY_EXACTLY_ONCE };
enum resume_from { RESUME_TAIL, RESUME_NONE };
/* Whether the records of a topic have the relay's own headers, outbox-id and outbox-position. */
enum topic_headers { TOPIC_HEADERS_FULL, TOPIC_HEADERS_NONE };

/* The choice between latency and CPU time: each value stands for a row of numbers. */
enum publisher_pace { PACE_LATENCY, PACE_BALANCED, PACE_ECONOMY, PACES };
struct publisher_pace_row {
	const char *name; /* in the configuration */
	int64_t poll_busy_ms, poll_idle_ms;
	int64_t linger_ms; /* default of the Kafka property linger.ms */
};
extern const struct publisher_pace_row publisher_paces[PACES];

struct publisher_settings {
	char *name; /* its name in the database; the first member, as in each named section */
	const struct postgres_settings *postgres;
	const struct kafka_settings *kafka;
	int64_t max_in_flight; /* records produced and not yet covered by a committed log row:
				  publisher_settings_in_flight */
	bool in_flight_said;   /* max_in_flight is configured, not a default */
	int64_t memory;        /* bytes for rows read and not yet acknowledged, queue included */
	int64_t lease_ms;
	enum publisher_pace pace;
	int64_t poll_busy_ms;    /* between polls while rows come; default by pace */
	int64_t poll_idle_ms;    /* maximum pause between polls when no rows come; by pace */
	int64_t ack_interval_ms; /* maximum time from an acknowledgement to its log row */
	int64_t stall_after_ms;  /* a producer without progress for this time is replaced */
	int64_t topic_idle_ms;   /* a topic without messages for this time is closed */
	enum delivery_mode delivery;
	enum resume_from resume; /* the first step of an owner that is new or has a new producer */
	/* retries of a record that Kafka refused permanently */
	int64_t retry_first_ms; /* the first pause; each is twice the one before */
	int64_t retry_max_ms;   /* maximum pause */
	int64_t max_attempts;   /* after this number of attempts the record is dead */
	enum timestamp_source timestamp;
	enum safety safety;
	/* Rules for single topics; struct stream_parking explains the first two. None is NULL. */
	enum stream_policy (*policy)(const void *context, const char *topic);
	char *(*refused_topic)(const void *context, const char *topic);
	/* TOPIC_HEADERS_NONE requires RESUME_NONE, since records in a tail are known by headers */
	enum topic_headers (*headers)(const void *context, const char *topic);
	const void *context;
};

/* The effective max_in_flight: with exactly-once the default is 40000. */
int64_t publisher_settings_in_flight(const struct publisher_settings *settings);
