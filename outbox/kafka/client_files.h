#pragma once
/*
 * Keeps open clients of librdkafka up to date with the files that their settings name: values of
 * `*_file` keys (struct kafka_property), certificates and keys. librdkafka reads each of them once.
 * The files are compared by content, since secrets of Kubernetes change by a new symbolic link.
 *
 * A changed sasl.username or sasl.password is given to the open clients, which use it for their
 * next connections. After any other change a client is stale: its owner replaces it, when no work
 * is in flight or soon anyway. New files count only once a client can be made from them; until then
 * the former ones stay in force, so that a half-written pair of certificate and key stops nobody.
 *
 * Any thread may call. client_files_check, _rereads and _add are for all, the others private to
 * this folder.
 */
#include <stdbool.h>
#include <stdint.h>
#include "errors.h"
#include "kafka_settings.h"

enum {
	CLIENT_FILES_MS = 5000, /* the files are read so often */
	CLIENT_FILES_MEMORY = 8,
};

/* Is the value of the property that of a file which is read again? */
bool client_files_rereads(const struct kafka_property *property);
/*
 * As kafka_settings_add; with the suffix _file, as in sasl.password_file, the value is the path of
 * a file that holds the value. kafka_conf_check reports a file that cannot be read.
 */
void client_files_add(
    struct kafka_settings *settings, const char *name, const char *value, const char *origin);
/* Reads the files at once, for SIGHUP. */
void client_files_check(void);

struct rd_kafka_s;
struct rd_kafka_conf_s;
struct client_files; /* those of one section */

/*
 * Around rd_kafka_new: begin sets the values in force, and end lists the client; handle NULL: there
 * is none. librdkafka gets the PEM content in force as files in memory, for this time only: the
 * real files may be half-written when it opens them.
 */
struct client_files_use {
	struct client_files *files; /* NULL: the settings name no file */
	uint64_t version;
	int fds[CLIENT_FILES_MEMORY], fd_count;
};
void client_files_begin(struct rd_kafka_conf_s *conf, const struct kafka_settings *kafka,
    struct client_files_use *ret_use);
void client_files_end(struct client_files_use *use, struct rd_kafka_s *handle);
void client_files_forget(const struct rd_kafka_s *handle);

/* Reads the files when they are due. True: the client needs a successor. */
bool client_files_is_stale(const struct rd_kafka_s *handle);
/* When to call it again (clock_ms); INT64_MAX: the client has no files. */
int64_t client_files_due(const struct rd_kafka_s *handle);

/* ERR_CONFIG names the property whose file cannot be read. */
bool client_files_readable(const struct kafka_settings *kafka, struct err *err);
