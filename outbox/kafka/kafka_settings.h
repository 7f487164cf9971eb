#pragma once
/*
 * The settings of a Kafka cluster: librdkafka properties, as a [kafka] section or an application
 * gives them. Plain data. The caller fills the struct and owns it, with every string and the array:
 * on the heap (kafka_settings_add, kafka_settings_finish) or not. The caller keeps all of that
 * unchanged and alive as long as any client that was made from it, since clients copy nothing. Any
 * number of threads may read it.
 * kafka_conf_check tells whether librdkafka and the relay accept the properties.
 */

struct kafka_property {
	char *name, *value; /* a librdkafka property under its own name; never NULL */
	char *file;         /* holds the value (NAME_file = path); NULL: none */
	char *origin;       /* "relay.ini:12" or the environment variable: for messages */
};

struct kafka_settings {
	char *name; /* names the cluster in messages; first, as in each named section */
	struct kafka_property *properties; /* NULL if there are none */
	int property_count;
};

/* Adds a property, with copies of its texts. {0} has none. */
void kafka_settings_add(
    struct kafka_settings *settings, const char *name, const char *value, const char *origin);
/* The value of the last property that was added came from this file. */
void kafka_settings_set_file(struct kafka_settings *settings, const char *path);
/* Frees the name, the array and its texts. */
void kafka_settings_finish(struct kafka_settings *settings);
