#pragma once
/*
 * The properties that the relay sets itself, one row each. Clients are made from this table, the
 * page of the configuration is written from it, and doctor prints the values that are in force.
 */

enum kafka_default_side { KAFKA_DEFAULT_ALL, KAFKA_DEFAULT_PRODUCER, KAFKA_DEFAULT_TRANSACTIONS };

struct kafka_default {
	const char *name;
	const char *value;            /* NULL: it follows from settings of the publisher */
	enum kafka_default_side side; /* the clients that get it */
	const char *why;              /* one sentence, for the page */
};
extern const struct kafka_default kafka_defaults[];
extern const int kafka_default_count;
