#include "dedup_spec.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "bloom_filter.h"
#include "dedup_store.h"
#include "text.h"

enum { DEFAULT_PENDING = 100000, DEFAULT_SLICES = 5, MOST_PLACES = 16 << 20 };
_Static_assert(2 * (DEDUP_MOST_SLICES + 1) <= (int)BLOOM_FILTERS, "each slice can be split");

/* --- settings ------------------------------------------------------------------------------- */

/* 0.1% or 0.001 */
static bool set_rate(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	char *end;
	double rate = value[0] >= '0' && value[0] <= '9' ? strtod(value, &end) : NAN;
	(void)err;
	if (isnan(rate) || (*end && !text_equal(end, "%")))
		return false;
	rate /= *end ? 100 : 1;
	if (!(rate >= 0.999e-9 && rate < 1))
		return false;
	*(double *)((char *)object + setting->offset) = rate;
	return true;
}

/* A rate; 0: never. */
static bool set_alarm(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	if (!text_equal(value, "0"))
		return set_rate(object, setting, value, err);
	((struct dedup_spec *)object)->alarm = 0;
	return true;
}

static bool set_confirm(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	struct dedup_spec *spec = object;
	(void)setting;
	(void)err;
	spec->confirm_sql = text_equal(value, "sql");
	return spec->confirm_sql || text_equal(value, "log");
}

static bool set_counter(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	struct dedup_spec *spec = object;
	(void)setting;
	(void)err;
	spec->counter_bits = text_equal(value, "8") ? 8 : 4;
	return spec->counter_bits == 8 || text_equal(value, "4");
}

#define AT(member) offsetof(struct dedup_spec, member)
const struct spec_setting dedup_settings[DEDUP_SETTINGS + 1] = {
    [DEDUP_SET_LOSSY] = {"lossy", NULL, spec_set_flag, AT(lossy)},
    [DEDUP_SET_IDS] = {"ids", "a number of ids from 1 to 100G, as ids=50M", spec_set_number,
	AT(ids), units_count, 1, INT64_C(100000000000),
	.missing = "how many different ones come in a window, as ids=50M"},
    [DEDUP_SET_RATE] = {"rate", "a share from 0.0000001% to less than 100%, as rate=0.1%", set_rate,
	AT(rate)},
    [DEDUP_SET_ALARM] = {"alarm", "a share as rate is, as alarm=0.2%, or 0", set_alarm, AT(alarm)},
    [DEDUP_SET_WINDOW] = {"window", "a time from 1ms to 3650d, as window=24h", spec_set_number,
	AT(window_ms), units_duration, 1, INT64_C(3650) * 86400 * 1000},
    [DEDUP_SET_SLICES] = {"slices", "a number from 1 to 31, as slices=5", spec_set_number,
	AT(slices), units_none, 1, DEDUP_MOST_SLICES},
    [DEDUP_SET_COUNTER] = {"counter", "the width of a counter in bits, 4 or 8, as counter=8",
	set_counter, AT(counter_bits)},
    [DEDUP_SET_HOT] = {"hot", "a number of ids from 1 to 16M, as hot=4096", spec_set_number,
	AT(hot), units_count, 1, MOST_PLACES},
    [DEDUP_SET_PENDING] = {"pending", "a number of ids from 1 to 16M, as pending=100k",
	spec_set_number, AT(pending), units_count, 1, MOST_PLACES},
    [DEDUP_SET_PATH] = {"path", "a folder, as path=/var/lib/billing/dedup", spec_set_text,
	AT(path)},
    [DEDUP_SET_FORM] = {"form", "the way in which the store keeps ids (docs/reference/dedup.md)",
	spec_set_text, AT(form)},
    [DEDUP_SET_CONFIRM] = {"confirm", "log, or sql with a query", set_confirm, AT(confirm_sql)},
    [DEDUP_SET_QUERY] = {"query",
	"a statement, as query=\"select id from orders where id = any($1)\"", spec_set_text,
	AT(query)},
    [DEDUP_SET_DSN] = SPEC_DSN(struct dedup_spec),
    [DEDUP_SET_SCHEMA] = SPEC_SCHEMA(struct dedup_spec),
    [DEDUP_SET_URL] = SPEC_URL(struct dedup_spec),
    [DEDUP_SET_PASSWORD_FILE] = SPEC_PASSWORD_FILE(struct dedup_spec),
    [DEDUP_SET_TLS_CA] = SPEC_TLS_CA(struct dedup_spec),
    [DEDUP_SET_TLS_CERTIFICATE] = SPEC_TLS_CERTIFICATE(struct dedup_spec),
    [DEDUP_SET_TLS_KEY] = SPEC_TLS_KEY(struct dedup_spec),
    [DEDUP_SET_SENTINEL_PASSWORD_FILE] = SPEC_SENTINEL_PASSWORD_FILE(struct dedup_spec),
    [DEDUP_SET_ZONE] = {"zone", "a time zone of this system, as zone=Europe/Berlin", spec_set_text,
	AT(zone)},
    [DEDUP_SET_NAME] = SPEC_NAME(struct dedup_spec),
    [DEDUP_SET_LEASE] = SPEC_LEASE(struct dedup_spec),
    [DEDUP_SET_TIMEOUT] = SPEC_TIMEOUT(struct dedup_spec),
};

void dedup_spec_init(struct dedup_spec *spec, const struct dedup_store_type *type)
{
	*spec = (struct dedup_spec){.type = type,
	    .rate = 0.001,
	    .alarm = -1,
	    .counter_bits = 4,
	    .lease_ms = 30000,
	    .timeout_ms = 2000};
}

void dedup_spec_finish(struct dedup_spec *spec)
{
	free(spec->form);
	free(spec->path);
	free(spec->dsn);
	free(spec->query);
	free(spec->schema);
	redis_access_finish(&spec->server);
	free(spec->zone);
	free(spec->name);
	dedup_spec_init(spec, NULL);
}

/* --- checks --------------------------------------------------------------------------------- */

/* A false positive of a lossy store drops a message for good, so the line must enable it. If a
 * query confirms each hit, nothing is dropped. */
static bool check_lossy(const struct dedup_spec *spec, struct err *err)
{
	const struct dedup_store_type *type = spec->type;
	bool lossy = type->promise.lossy && !spec->confirm_sql;
	bool confirms = type->promise.lossy && type->spec.takes & DEDUP_TAKES(CONFIRM);
	const char *store = type->spec.name, *equals = type->form ? " form=" : "";
	const char *form = type->form ? type->form : "";

	if (lossy && !spec->lossy)
		return err_set(err, ERR_CONFIG,
		    "'%s%s%s' takes some new ids for done ones, whose messages are lost: write "
		    "'%s lossy%s%s' if that may be,%s or choose bloom or exact",
		    store, equals, form, store, equals, form,
		    confirms ? " add confirm=sql with a query," : "");

	return lossy || !spec->lossy ||
	       err_set(err, ERR_CONFIG, "'%s%s%s'%s is not lossy: leave the word out", store,
		   equals, form, spec->confirm_sql ? " with confirm=sql" : "");
}

bool dedup_spec_check(struct dedup_spec *spec, struct err *err)
{
	const struct dedup_store_type *type = spec->type;

	spec->windowed = spec->window_ms > 0;
	spec->sliced = spec->slices > 0;
	/* Before the store's check, which plans the memory of all slices. */
	if (!spec->sliced)
		spec->slices = DEFAULT_SLICES;

	if (!spec_check_needs(&type->spec, spec, err) || !check_lossy(spec, err) ||
	    (type->check && !type->check(spec, err)))
		return false;

	/* After the store's check, which must see which settings the line left out. */
	if (spec->window_ms == 0)
		spec->window_ms = DEDUP_WINDOW_MS;
	if (spec->pending == 0)
		spec->pending = DEFAULT_PENDING;

	return spec->window_ms >= spec->slices ||
	       err_set(err, ERR_CONFIG,
		   "window=%" PRId64 "ms is shorter than its %" PRId64
		   " slices of a millisecond; lengthen window or lower slices",
		   spec->window_ms, spec->slices);
}

bool dedup_spec_forgets(const struct dedup_spec *spec)
{
	return spec->type->spec.takes & DEDUP_TAKES(WINDOW) &&
	       (!spec->type->window_optional || spec->windowed);
}

struct dedup_window_settings dedup_spec_window(const struct dedup_spec *spec)
{
	return (struct dedup_window_settings){.path = spec->path,
	    .ids = (uint64_t)spec->ids,
	    .rate = spec->rate,
	    .alarm = spec->alarm,
	    .slice_ms = dedup_spec_slice_ms(spec),
	    .slices = (int)spec->slices,
	    .hot = (uint64_t)spec->hot};
}

bool dedup_spec_check_memory(struct dedup_spec *spec, uint64_t bytes, bool by_rate, struct err *err)
{
	int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	spec->planned_bytes = bytes;
	if (pages <= 0 || page <= 0 || bytes / (uint64_t)page < (uint64_t)pages)
		return true;
	return err_set(err, ERR_CONFIG,
	    "ids=%" PRId64 "%s needs %" PRIu64 " MiB of memory, and this machine has %" PRId64
	    " MiB: lower ids, as a shorter window has, %s",
	    spec->ids, by_rate ? " at this rate" : "", bytes >> 20, pages * (page >> 10) >> 10,
	    by_rate ? "or raise rate" : "or choose bloom");
}
