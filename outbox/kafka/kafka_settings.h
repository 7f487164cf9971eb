#pragma once
/*
 * The settings of a Kafka cluster: librdkafka properties, as a [kafka] section or an application
 * gives them. Plain data. The caller fills the struct and owns it, with every string and the array.
 * The caller keeps all of that unchanged and alive as long as any client that was made from it: the
 * functions of this folder copy and free nothing of it. Any number of threads may read it.
 * kafka_conf_check tells whether librdkafka and the relay accept the properties.
 */

struct kafka_property {
	char *name, *value; /* a librdkafka property under its own name; never NULL */
	char *origin;       /* "relay.ini:12" or the environment variable: for messages */
};

struct kafka_settings {
	char *name; /* names the cluster in messages; first, as in each named section */
	struct kafka_property *properties; /* NULL if there are none */
	int property_count;
};
