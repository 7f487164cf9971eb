#pragma once
/*
 * The configuration: an INI file (libinih), overridden by the environment, checked against one
 * table of rows (config_rows.c) that also makes the sample file and the reference page.
 *
 * Sections: [postgres] [kafka] [publisher] [api] [admin] [log]; further ones are named: [postgres
 * "x"], [kafka "y"], [publisher "z"]. An unnamed section [publisher] is the publisher "main";
 * [postgres] and [kafka] without a name are "main" as well. A kind that is not declared at all has
 * one section, "main", with the defaults. Exception: a configuration with [deliver] sections and
 * none of [postgres], [publisher] and [lookback] is that of a sidecar, and has no database and no
 * publisher. [topic "orders"], [check "x"], [lookback "orders"] and [deliver "billing"] always have
 * names, and may be missing: a topic without a section has the defaults.
 *
 * Environment: OUTBOX_RELAY_<SECTION>_<KEY> for the unnamed ("main") section and
 * OUTBOX_RELAY_<SECTION>_<NAME>_<KEY> for a named one that the file declares; upper case, dots and
 * dashes as underscores. It wins over the file. DATABASE_URL, else libpq's PG* variables, serve
 * when no dsn is given for "main". An OUTBOX_RELAY_ variable that matches no row is an error, like
 * an unknown key; OUTBOX_RELAY_CONFIG, _SERVER*, _TOKEN* and _FAULT* are not settings and are left
 * alone.
 *
 * Secrets: dsn_file and its like, and any librdkafka property with _file behind it, name a file
 * that holds the value; a relative path is in $CREDENTIALS_DIRECTORY when that is set. No value of
 * a dsn or of a property is ever part of a message.
 *
 * A loaded configuration is read-only and may be shared between threads; every string is owned by
 * it. On a reload a new configuration is loaded, and each user of a reloadable value copies it.
 */
#include <stdbool.h>
#include <stdint.h>
#include "errors.h"
#include "inbox.h"
#include "kafka_settings.h"
#include "logging.h"
#include "postgres_settings.h"
#include "publisher_settings.h"
#include "text.h"

/* The content of a request to an application, and the form of an event (CloudEvents). */
enum deliver_form { DELIVER_SINGLE, DELIVER_BATCH };
enum deliver_mode { DELIVER_BINARY, DELIVER_STRUCTURED };
/* How the relay asks the business about an undecided message. */
enum check_transport { CHECK_HTTP, CHECK_GRPC, CHECK_SQL };

struct config_list {
	char **items;
	int *lines; /* of CONFIG_LINES: the line of each item in its text, from 1; otherwise NULL */
	int count;
};
void config_list_copy(struct config_list *to, const struct config_list *from);
void config_list_finish(struct config_list *list);

struct config;

struct config_publisher {
	/* its functions use the sections of `config`; their context is this struct */
	struct publisher_settings settings;
	const struct config *config; /* the configuration that contains it */
	char *origin;                /* where it was declared, for messages */
	int64_t shards; /* 0: the number in the database; otherwise it must be that number */
	struct config_list topics; /* topics that it publishes to; "orders.*": all that begin so */
};

struct config_topic {
	char *name; /* as Kafka spells it */
	enum stream_policy on_refusal;
	enum topic_headers headers;
};

/* Headers and tokens of requests to a business: http_credentials.h. */
struct config_credentials {
	struct config_list headers;                  /* "Name: value" each */
	char *headers_file;                          /* that they were read from; NULL: none */
	char *token_url, *client_id, *client_secret; /* "": none */
	char *client_secret_file;                    /* as headers_file */
	char *scope, *audience, *token_ca;
};

/* A business that the relay asks about undecided messages, and how. */
struct config_check {
	char *name;
	char *origin; /* where it was declared, for messages */
	enum check_transport transport;
	char *url; /* http, grpc (service_url.h too); "": only the URLs that messages bring */
	char *name_servers;       /* that resolve url = grpc://NAME; "": those of the system */
	char *dsn, *function;     /* sql */
	int read_only;            /* sql: 1: the function may not write */
	struct config_list types; /* types whose messages may use this section; empty: any */
	char *allow;    /* destinations that messages may bring, for http_destinations_parse */
	char *networks; /* allowed addresses that are not public, for http_networks_parse */
	char *secret, *old_secret; /* whsec_..., "": unsigned, none */
	struct config_credentials credentials;
	char *tls_ca, *tls_certificate, *tls_key; /* paths; "": the system's, none */
	int64_t timeout_ms, connect_timeout_ms;
	int64_t max_answer;     /* bytes */
	int64_t batch;          /* ids in one request */
	int64_t host_in_flight; /* requests at once, to one host and port */
	int64_t type_in_flight; /* the same, about one biz_type */
	int64_t rate;           /* maximum requests per second; 0: no limit */
	int64_t retry_first_ms, retry_max_ms;
	int64_t max_attempts;
	int64_t pending_every_ms, pending_max_ms;
	int64_t retry_after_max_ms;
	int64_t breaker_failures, breaker_pause_ms;
};

/* The look-back of some business types: where records are read, kept and forwarded. */
struct config_lookback {
	char *name;
	char *origin;
	const struct postgres_settings *postgres;
	const struct kafka_settings *kafka;
	const struct config_check *check; /* default of messages; NULL: each must name one */
	char *topic, *group;
	struct config_list types;  /* its business types */
	struct config_list topics; /* topics of its messages; "orders.*": all that begin so */
	int is_default;    /* 1: this section dead-letters records that belong to no section */
	char *dead_letter; /* topic */
	int64_t check_after_ms, expires_after_ms; /* for a prepare that does not set them */
	int64_t readers;                          /* members of the group, each with a session */
	int64_t batch;                            /* records in one transaction */
	int64_t memory;                           /* bytes of records in one transaction */
	int64_t in_flight;                        /* requests at once, to all businesses */
	int64_t claim_ms;
};

/* Topics whose messages are handed to an application by HTTP: the sidecar. */
struct config_deliver {
	char *name;
	char *origin;
	const struct kafka_settings *kafka;
	struct config_list topics;
	char *group;
	char *url;
	enum deliver_form form;
	enum deliver_mode mode; /* of a single message; a batch is always structured */
	int64_t batch;          /* messages in one request; 1 unless form is batch */
	char *dedup;            /* a line for outbox_dedup_open; "": copies are not recognised */
	char *claims;           /* a line for outbox_claims_open; "": ids are not claimed */
	char *report;           /* a line of report_spec.h; "": nothing is reported */
	char *path;             /* state folder; "": none */
	char *id;               /* what identifies a message */
	enum outbox_inbox_policy without_id;
	struct config_list rules; /* lines for outbox_rules_open_as */
	char *rules_file;         /* the file that the rules were read from; NULL: none */
	char *rules_store;        /* line of the server that has their records; "": the folder */
	char *user, *content, *channel, *zone; /* struct outbox_rules_settings; "": the default */
	int64_t concurrency;                   /* messages that are handled at once */
	int64_t connections;                   /* requests at once */
	int64_t memory;                        /* bytes of messages */
	int64_t retry_first_ms, retry_max_ms;
	int64_t attempts;                /* 0: without end */
	struct config_list retry_topics; /* as written in the file: "orders.retry=10s" */
	/* the same, ended as outbox_inbox_open requires; owns the topics */
	struct outbox_inbox_retry_topic *retry_steps;
	char *dead_letter_topic; /* "": none */
	enum outbox_inbox_start start;
	int64_t commit_every_ms, drain_ms;
	int64_t timeout_ms, connect_timeout_ms;
	int64_t max_answer; /* bytes */
	char *networks;     /* for http_networks_parse */
	char *secret, *old_secret;
	struct config_credentials credentials;
	char *tls_ca, *tls_certificate, *tls_key;
	int64_t rate; /* maximum requests per second; 0: no limit */
	int64_t retry_after_max_ms;
	int64_t breaker_failures, breaker_pause_ms;
	char *event_source, *event_type; /* "": derived from the topic */
};

/* Roles of a caller of the HTTP interface. No role includes another. */
enum config_role {
	ROLE_READ = 1,
	ROLE_PAYLOAD = 2,
	ROLE_SEND = 4,
	ROLE_OPERATE = 8,
	ROLE_DECIDE = 16,
};

/* A caller of the HTTP interface. */
struct config_token {
	char *name;
	struct config_list tokens;
	struct config_list roles;      /* words: config_token_roles */
	struct config_list publishers; /* their names; empty: any, as in the next two */
	struct config_list sections;   /* names of [lookback] and [deliver] sections */
	struct config_list types;      /* business types; "orders.*": all that begin so */
};

/* TLS of a listener; paths, "": plain HTTP. */
struct config_server_tls {
	char *certificate, *key;
};

/* The HTTP interface for applications and operators. */
struct config_api {
	char *listen;            /* "": no interface; otherwise there is a [token] */
	int remote;              /* 1: listen may be another address than loopback */
	struct config_list host; /* names that requests may use, besides those of listen */
	struct config_server_tls tls;
	int64_t max_body;
	int64_t arrival_ms; /* maximum time for a whole request to arrive */
	int console;        /* 1: pages for a browser, which logs in with a token */
	char *public_url;   /* "https://relay.example": what browsers call; "": as they call it */
	char *advertise;    /* URL of this process for others; "": they get none */
	char *session_key;  /* signs sessions; "": a key that is made from the tokens */
	int64_t session_idle_ms, session_max_ms; /* a session ends after so long without a request,
						    and so long after its login */
};

struct config {
	char *path; /* of its file; NULL: none */
	struct postgres_settings *postgres;
	int postgres_count;
	struct kafka_settings *kafka;
	int kafka_count;
	struct config_publisher *publishers;
	int publisher_count;
	struct config_topic *topics; /* by name, in strcmp's order; only those with a section */
	int topic_count;
	struct config_check *checks;
	int check_count;
	struct config_lookback *lookbacks;
	int lookback_count;
	struct config_deliver *delivers;
	int deliver_count;
	struct config_token *tokens;
	int token_count;
	struct config_api api;
	char *admin_listen; /* "host:port", a bare port made 127.0.0.1:port; "" (default): off */
	int admin_remote;   /* as in struct config_api */
	struct config_list admin_host;
	struct config_server_tls admin_tls;
	enum log_level log_level;
	enum log_format log_format;
	struct text warnings; /* one line for each file that others can read */
};

/*
 * path NULL: no file. Every error names the place ("relay.ini:7: [publisher \"main\"] lease: …" or
 * the variable) and the cure; kind ERR_CONFIG.
 */
struct config *config_load(const char *path, struct err *err) MUST_CHECK;
/* The same from memory. Messages name the file `name`; environ is a NULL-ended "K=V" list. */
struct config *config_parse(
    const char *name, const char *ini, char *const *environ_list, struct err *err) MUST_CHECK;
void config_destroy(struct config *config); /* NULL is fine */

/* Does the origin say that no file and no variable declares the section, so that it has the
 * defaults? */
bool config_is_default(const char *origin);

const struct postgres_settings *config_find_postgres(const struct config *config, const char *name);
const struct config_publisher *config_find_publisher(const struct config *config, const char *name);
/* The settings of any topic, found by a binary search over the sections; without a section, the
 * defaults. */
enum stream_policy config_topic_policy(const struct config *config, const char *topic);
enum topic_headers config_topic_headers(const struct config *config, const char *topic);
/* "orders.*" and "*" match all names that begin so; any other entry matches only itself. */
bool config_list_matches(const struct config_list *list, const char *word);
/*
 * Is this a topic that only the relay and the applications of the look-back write to? These are the
 * look-back, dead-letter and retry topics of the configuration, and Kafka's own, which begin with
 * "__". NULL: it is not; otherwise the setting that names the topic, as in `[lookback "orders"]
 * topic`. The caller frees.
 */
char *config_internal_topic(const struct config *config, const char *topic);
unsigned config_token_roles(const struct config_token *token); /* a sum of enum config_role */
/* Is the token for this section? NULL: for all sections? */
bool config_token_has_section(const struct config_token *token, const char *section);
/* The same for a business type of it; NULL: for all of them? */
bool config_token_has_type(
    const struct config_token *token, const char *section, const char *biz_type);
/* The first token that has the role for this section (NULL: for all sections); NULL: none has. */
const char *config_token_for(
    const struct config *config, enum config_role role, const char *section);
const struct config_check *config_find_check(const struct config *config, const char *name);
/* NULL and ERR_CONFIG: there is no such section. */
const struct config_deliver *config_find_deliver(
    const struct config *config, const char *name, struct err *err);
/* Reads a file as the key rules_file does. The caller finishes ret_rules. */
bool config_rules_read(const char *path, struct config_list *ret_rules, struct err *err) MUST_CHECK;
/*
 * From now on each connection by the dsn of a section with password_command gets its password from
 * the command. Call it before threads connect.
 */
void config_use_password_commands(const struct config *config);
/* Does a publisher with exactly-once publish to the topic? */
bool config_has_transactions(const struct config *config, const struct kafka_settings *kafka);
bool config_list_has(const struct config_list *list, const char *word);

/*
 * Compares a newly loaded configuration with the running one. Appends to *ret_fixed one line for
 * each changed value that needs a restart ("publisher.main.shards: restart to apply").
 */
void config_compare(
    const struct config *running, const struct config *fresh, struct text *ret_fixed);

void config_print_sample(struct text *out); /* a commented INI file that parses to the defaults */
void config_print_reference(struct text *out); /* docs/reference/configuration.md */
void config_print_manual(struct text *out);    /* the manual page outbox-relay.ini(5) */
