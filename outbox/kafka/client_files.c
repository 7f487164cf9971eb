/*
 * One struct client_files for each section that names files and has an open client. check_files
 * compares the content of the files with the content in force; begin at client_files_is_stale,
 * which owners of clients call in each turn of their loops.
 */
#include "client_files.h"

#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#include "cleanup.h"
#include "clock.h"
#include "connect_fault.h"
#include "kafka_conf.h"
#include "logging.h"
#include "text.h"

enum { LARGEST_FILE = 64 << 20 /* lists of revoked certificates are long */ };

struct client_files {
	const struct kafka_settings *kafka;
	int users;          /* open clients, and calls of rd_kafka_new */
	uint64_t version;   /* of the values */
	char **values;      /* in force, by property; NULL: it has no file, or none to be read */
	struct err refused; /* why the newest content is not in force; "": it is */
	struct client_files *next;
};

struct file_client {
	rd_kafka_t *handle;
	struct client_files *files;
	bool stale;
	UT_hash_handle hh;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct client_files *sections;
static struct file_client *clients;
static atomic_llong check_at;
static atomic_int client_count, stale_count;

/* --- files ----------------------------------------------------------------------------------- */

/* The value is the path of a file. */
static bool is_location(const struct kafka_property *property)
{
	static const char *const names[] = {"ssl.ca.location", "ssl.certificate.location",
	    "ssl.key.location", "ssl.keystore.location", "ssl.crl.location"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (text_equal(names[i], property->name))
			return true;
	return false;
}

/* Other properties with a file, as bootstrap.servers_file, need a restart. */
bool client_files_rereads(const struct kafka_property *property)
{
	return property->file && (strncmp(property->name, "ssl.", 4) == 0 ||
				     strncmp(property->name, "sasl.", 5) == 0);
}

/* NULL: it holds no value; the path may be a word of librdkafka (ssl.ca.location = probe). */
static const char *path_of(const struct kafka_property *property)
{
	struct stat state;

	if (client_files_rereads(property))
		return property->file;
	if (!is_location(property) || !property->value[0] || text_equal(property->value, "probe") ||
	    (stat(property->value, &state) == 0 && S_ISDIR(state.st_mode)))
		return NULL;
	return property->value;
}

static char *read_content(const char *path, struct err *err)
{
	owned_file FILE *file = fopen(path, "re");
	OWNED(text_finish) struct text content = {0};
	char part[BUFSIZ];
	size_t length;

	while (file && content.length <= LARGEST_FILE &&
	       (length = fread(part, 1, sizeof part, file)) > 0)
		text_append(&content, part, length);
	if (!file || ferror(file)) {
		err_set(err, ERR_CONFIG, "%s: cannot be read: %s", path, strerror(errno));
		return NULL;
	}
	/* A part of a list of authorities would refuse the brokers of the others. */
	if (content.length > LARGEST_FILE) {
		err_set(err, ERR_CONFIG, "%s: is larger than %d MiB", path, LARGEST_FILE >> 20);
		return NULL;
	}
	/* A key store is not text, and is only compared. */
	for (size_t i = 0; i < content.length; i++)
		content.data[i] = content.data[i] ? content.data[i] : '\1';
	return xstrdup(text_string(&content));
}

static void free_values(char **values, int count)
{
	for (int i = 0; values && i < count; i++)
		free(values[i]);
	free(values);
}

static char *read_value(const struct kafka_settings *kafka, const struct kafka_property *property,
    const char *path, struct err *err)
{
	struct err why;
	char *content = read_content(path, &why);

	if (!content)
		err_set(err, ERR_CONFIG, "%s: [kafka \"%s\"] %s%s: %s", property->origin,
		    kafka->name, property->name, property->file ? "_file" : "", why.message);
	return content;
}

/* NULL: one of the files cannot be read. */
static char **read_values(const struct kafka_settings *kafka, struct err *err)
{
	char **values = xcalloc((size_t)kafka->property_count + 1, sizeof *values);

	for (int i = 0; i < kafka->property_count; i++) {
		const struct kafka_property *property = &kafka->properties[i];
		const char *path = path_of(property);

		if (!path)
			continue;
		values[i] = read_value(kafka, property, path, err);
		if (!values[i]) {
			free_values(values, kafka->property_count);
			return NULL;
		}
		if (client_files_rereads(property))
			text_cut_line_end(values[i]);
	}
	return values;
}

static bool has_files(const struct kafka_settings *kafka)
{
	for (int i = 0; i < kafka->property_count; i++)
		if (client_files_rereads(&kafka->properties[i]) ||
		    is_location(&kafka->properties[i]))
			return true;
	return false;
}

void client_files_add(
    struct kafka_settings *settings, const char *name, const char *value, const char *origin)
{
	size_t length = strlen(name), suffix = strlen("_file");
	struct err ignored;

	if (length <= suffix || !text_equal(name + length - suffix, "_file")) {
		kafka_settings_add(settings, name, value, origin);
		return;
	}

	owned_text char *property = xformat("%.*s", (int)(length - suffix), name);
	owned_text char *content = read_content(value, &ignored);
	if (content)
		text_cut_line_end(content);
	kafka_settings_add(settings, property, content ? content : "", origin);
	kafka_settings_set_file(settings, value);
}

bool client_files_readable(const struct kafka_settings *kafka, struct err *err)
{
	/* Those of which client_files_add has read the only value. */
	for (int i = 0; i < kafka->property_count; i++) {
		const struct kafka_property *property = &kafka->properties[i];
		if (!property->file || client_files_rereads(property))
			continue;
		owned_text char *value = read_value(kafka, property, property->file, err);
		if (!value)
			return false;
	}

	char **values = read_values(kafka, err);

	free_values(values, kafka->property_count);
	return values != NULL;
}

/* -1: there is no such file, or no /proc by which librdkafka could open it. */
static int make_memory_file(const char *content, char *ret_path, size_t size)
{
	int fd = memfd_create("outbox-relay", MFD_CLOEXEC);
	size_t length = strlen(content);

	snprintf(ret_path, size, "/proc/self/fd/%d", fd);
	if (fd >= 0 && write(fd, content, length) == (ssize_t)length && access(ret_path, R_OK) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Key stores are not text; librdkafka opens those itself. */
static void set_location(rd_kafka_conf_t *conf, const struct kafka_property *property,
    const char *content, struct client_files_use *use)
{
	char path[64];
	int fd;

	if (use->fd_count == CLIENT_FILES_MEMORY || !strstr(content, "-----BEGIN "))
		return;
	fd = make_memory_file(content, path, sizeof path);
	if (fd < 0)
		return;
	use->fds[use->fd_count++] = fd;
	(void)rd_kafka_conf_set(conf, property->name, path, NULL, 0);
}

static void close_memory_files(struct client_files_use *use)
{
	while (use->fd_count > 0)
		close(use->fds[--use->fd_count]);
}

static bool set_values(rd_kafka_conf_t *conf, const struct kafka_settings *kafka,
    char *const *values, struct client_files_use *use, struct err *err)
{
	for (int i = 0; i < kafka->property_count; i++) {
		const struct kafka_property *property = &kafka->properties[i];
		char text[512];

		if (values[i] && is_location(property))
			set_location(conf, property, values[i], use);
		/* The text of librdkafka may repeat a secret. */
		if (values[i] && client_files_rereads(property) &&
		    rd_kafka_conf_set(conf, property->name, values[i], text, sizeof text) !=
			RD_KAFKA_CONF_OK)
			return err_set(err, ERR_CONFIG,
			    "%s: [kafka \"%s\"] %s_file: librdkafka refuses the value",
			    property->origin, kafka->name, property->name);
	}
	return true;
}

/* --- a change -------------------------------------------------------------------------------- */

/* Connects to nothing: the client has no broker. */
static bool make_trial_client(
    const struct kafka_settings *kafka, char *const *values, struct err *err)
{
	rd_kafka_conf_t *conf = kafka_conf_client(kafka, err);
	struct client_files_use use = {0};
	rd_kafka_t *handle;
	char text[512];

	if (!conf)
		return false;
	/* Its lines would wait for the mutex. */
	rd_kafka_conf_set_log_cb(conf, NULL);
	if (!set_values(conf, kafka, values, &use, err) ||
	    !kafka_conf_set(conf, "bootstrap.servers", "", err) ||
	    !kafka_conf_set(conf, "log_level", "0", err)) {
		close_memory_files(&use);
		rd_kafka_conf_destroy(conf);
		return false;
	}
	handle = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
	close_memory_files(&use);
	if (handle) {
		rd_kafka_destroy(handle);
		return true;
	}
	rd_kafka_conf_destroy(conf);
	const char *cure = connect_fault_cure(text);
	return err_set(err, ERR_CONFIG, "[kafka \"%s\"]: %s%s%s", kafka->name, text,
	    cure ? "; " : "", cure ? cure : "");
}

static bool is_login(const struct kafka_property *property)
{
	return text_equal(property->name, "sasl.username") ||
	       text_equal(property->name, "sasl.password");
}

static bool any_differs(const struct client_files *files, char *const *fresh, bool logins)
{
	for (int i = 0; i < files->kafka->property_count; i++)
		if (!text_equal(files->values[i], fresh[i]) &&
		    is_login(&files->kafka->properties[i]) == logins)
			return true;
	return false;
}

/* The value in force, of a file or not. */
static const char *value_in_force(const struct client_files *files, const char *name)
{
	const char *value = "";

	for (int i = 0; i < files->kafka->property_count; i++)
		if (text_equal(files->kafka->properties[i].name, name))
			value =
			    files->values[i] ? files->values[i] : files->kafka->properties[i].value;
	return value;
}

static void make_stale(struct file_client *client)
{
	if (!client->stale)
		atomic_fetch_add(&stale_count, 1);
	client->stale = true;
}

static void give_login(struct file_client *client)
{
	rd_kafka_error_t *error = rd_kafka_sasl_set_credentials(client->handle,
	    value_in_force(client->files, "sasl.username"),
	    value_in_force(client->files, "sasl.password"));

	/* A mechanism without a password. */
	if (error)
		make_stale(client);
	rd_kafka_error_destroy(error);
}

static void refuse_content(struct client_files *files, const struct err *why)
{
	if (text_equal(files->refused.message, why->message))
		return;
	files->refused = *why;
	log_warn("kafka_files_refused", {"kafka", LOG_TEXT(files->kafka->name)},
	    {"error", LOG_TEXT(why->message)},
	    {"consequence", LOG_TEXT("the clients keep the former certificates and passwords until "
				     "the files are whole")});
}

/* Takes fresh. */
static void accept_content(struct client_files *files, char **fresh, bool login, bool other)
{
	OWNED(text_finish) struct text names = {0};

	for (int i = 0; i < files->kafka->property_count; i++)
		if (!text_equal(files->values[i], fresh[i]))
			text_addf(&names, "%s%s", names.length ? ", " : "",
			    files->kafka->properties[i].name);
	free_values(files->values, files->kafka->property_count);
	files->values = fresh;
	files->refused = (struct err){0};
	files->version++;

	for (struct file_client *client = clients; client; client = client->hh.next) {
		if (client->files == files && login)
			give_login(client);
		if (client->files == files && other)
			make_stale(client);
	}
	log_info("kafka_files_changed", {"kafka", LOG_TEXT(files->kafka->name)},
	    {"properties", LOG_TEXT(text_string(&names))},
	    {"consequence", LOG_TEXT(other ? "new clients replace those that are open"
					   : "the next connections use them")});
}

static void check_section(struct client_files *files)
{
	struct err why;
	char **fresh = read_values(files->kafka, &why);

	if (!fresh) {
		refuse_content(files, &why);
		return;
	}

	bool login = any_differs(files, fresh, true), other = any_differs(files, fresh, false);
	if ((login || other) && make_trial_client(files->kafka, fresh, &why)) {
		accept_content(files, fresh, login, other);
		return;
	}
	if (login || other)
		refuse_content(files, &why);
	else
		files->refused = (struct err){0};
	free_values(fresh, files->kafka->property_count);
}

/* With the mutex. */
static void check_files(void)
{
	atomic_store(&check_at, clock_ms() + CLIENT_FILES_MS);
	for (struct client_files *files = sections; files; files = files->next)
		check_section(files);
}

void client_files_check(void)
{
	pthread_mutex_lock(&mutex);
	check_files();
	pthread_mutex_unlock(&mutex);
}

/* --- clients --------------------------------------------------------------------------------- */

/* Content that cannot be read now is that of the start. */
static struct client_files *add_section(const struct kafka_settings *kafka)
{
	struct client_files *files = xcalloc(1, sizeof *files);
	struct err ignored;

	files->kafka = kafka;
	files->values = read_values(kafka, &ignored);
	if (!files->values)
		files->values = xcalloc((size_t)kafka->property_count + 1, sizeof(char *));
	LL_PREPEND(sections, files);
	return files;
}

static void release_section(struct client_files *files)
{
	if (--files->users > 0)
		return;
	LL_DELETE(sections, files);
	free_values(files->values, files->kafka->property_count);
	free(files);
}

void client_files_begin(
    rd_kafka_conf_t *conf, const struct kafka_settings *kafka, struct client_files_use *ret_use)
{
	struct client_files *files;
	struct err ignored;

	*ret_use = (struct client_files_use){0};
	if (!has_files(kafka))
		return;
	pthread_mutex_lock(&mutex);
	LL_SEARCH_SCALAR(sections, files, kafka, kafka);
	if (!files)
		files = add_section(kafka);
	files->users++;
	ret_use->files = files;
	ret_use->version = files->version;
	/* librdkafka took values of these properties before. */
	(void)set_values(conf, kafka, files->values, ret_use, &ignored);
	pthread_mutex_unlock(&mutex);
}

static void list_client(const struct client_files_use *use, rd_kafka_t *handle)
{
	struct file_client *client = xcalloc(1, sizeof *client);

	client->handle = handle;
	client->files = use->files;
	HASH_ADD_PTR(clients, handle, client);
	atomic_fetch_add(&client_count, 1);
	/* The files changed while the client was made. */
	if (use->version != use->files->version)
		make_stale(client);
}

void client_files_end(struct client_files_use *use, rd_kafka_t *handle)
{
	close_memory_files(use);
	if (!use->files)
		return;
	pthread_mutex_lock(&mutex);
	if (handle)
		list_client(use, handle);
	else
		release_section(use->files);
	pthread_mutex_unlock(&mutex);
}

static struct file_client *find_file_client(const rd_kafka_t *handle)
{
	struct file_client *client;

	HASH_FIND_PTR(clients, &handle, client);
	return client;
}

void client_files_forget(const rd_kafka_t *handle)
{
	pthread_mutex_lock(&mutex);
	struct file_client *client = find_file_client(handle);
	if (client) {
		atomic_fetch_sub(&client_count, 1);
		atomic_fetch_sub(&stale_count, client->stale);
		release_section(client->files);
		HASH_DEL(clients, client);
		free(client);
	}
	pthread_mutex_unlock(&mutex);
}

bool client_files_is_stale(const rd_kafka_t *handle)
{
	/* Most processes name no file, and most calls end here. */
	if (atomic_load(&client_count) == 0)
		return false;

	bool due = clock_ms() >= atomic_load(&check_at);
	bool stale;
	if (!due && atomic_load(&stale_count) == 0)
		return false;

	pthread_mutex_lock(&mutex);
	if (due && clock_ms() >= atomic_load(&check_at))
		check_files();
	struct file_client *client = find_file_client(handle);
	stale = client && client->stale;
	pthread_mutex_unlock(&mutex);
	return stale;
}

int64_t client_files_due(const rd_kafka_t *handle)
{
	pthread_mutex_lock(&mutex);
	bool has_files = find_file_client(handle);
	pthread_mutex_unlock(&mutex);
	return has_files ? atomic_load(&check_at) : INT64_MAX;
}
