/*
 * Loaded before a program (LD_PRELOAD): librdkafka's debug lines of a new epoch come under another
 * name, as a later version may call them.
 */
#include <dlfcn.h>
#include <librdkafka/rdkafka.h>
#include <string.h>

typedef void log_callback(
    const rd_kafka_t *handle, int level, const char *facility, const char *text);
typedef void set_callback(rd_kafka_conf_t *conf, log_callback *callback);

/* Each client keeps its own: two are enough for a relay. */
static log_callback *callbacks[2];

static void rename_line(
    int number, const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
	if (strcmp(facility, "ERRSEQ") == 0 || strcmp(facility, "UNKPID") == 0)
		facility = "IDEMPERR";
	callbacks[number](handle, level, facility, text);
}

static void on_first(const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
	rename_line(0, handle, level, facility, text);
}

static void on_second(const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
	rename_line(1, handle, level, facility, text);
}

__attribute__((visibility("default"))) void rd_kafka_conf_set_log_cb(
    rd_kafka_conf_t *conf, log_callback *callback)
{
	set_callback *real;
	*(void **)&real = dlsym(RTLD_NEXT, "rd_kafka_conf_set_log_cb");
	int number = !callbacks[0] || callbacks[0] == callback ? 0 : 1;

	if (!callback) {
		real(conf, NULL);
		return;
	}
	callbacks[number] = callback;
	real(conf, number == 0 ? on_first : on_second);
}
