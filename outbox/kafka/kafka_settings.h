#pragma once
/*
 * The settings of a Kafka cluster: librdkafka properties, as a [kafka] section or an application
 * gives them. Plain data. Whoever fills it owns every string and the array, and keeps all of it
 * unchanged and alive for as long as something that was made from it; the folder copies nothing and
 * frees nothing. Any number of threads may read it. kafka_conf_check says whether it can work.
 */

struct kafka_property {
	char *name, *value; /* a librdkafka property under its own name; never NULL */
	char *origin;       /* "relay.ini:12" or the environment variable: for messages */
};

struct kafka_settings {
	char *name; /* of the cluster, for messages; the first member, as in each named section */
	struct kafka_property *properties; /* NULL if there are none */
	int property_count;
};
