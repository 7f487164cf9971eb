#include "dedup_spec.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "bloom_filter.h"
#include "bloom_size.h"
#include "cleanup.h"
#include "text.h"
#include "units.h"

const char *const dedup_store_names[DEDUP_STORES + 1] = {[DEDUP_BLOOM] = "bloom"};

static const int64_t most_ids = INT64_C(100000000000), most_window = INT64_C(3650) * 86400 * 1000;
enum { MOST_SLICES = BLOOM_FILTERS / 2 - 1 };

struct setting {
	const char *name, *example;
	bool (*set)(void *place, const char *value);
	size_t offset;
};

static bool set_number(
    void *place, const char *value, const struct unit *units, int64_t low, int64_t high)
{
	int64_t number;
	if (units_parse(value, units, &number) != UNITS_READ || number < low || number > high)
		return false;
	*(int64_t *)place = number;
	return true;
}

static bool set_ids(void *place, const char *value)
{
	return set_number(place, value, units_count, 1, most_ids);
}

static bool set_window(void *place, const char *value)
{
	return set_number(place, value, units_duration, 1, most_window);
}

static bool set_slices(void *place, const char *value)
{
	return set_number(place, value, units_none, 1, MOST_SLICES);
}

/* 0.1% or 0.001 */
static bool set_rate(void *place, const char *value)
{
	char *end;
	double rate = value[0] >= '0' && value[0] <= '9' ? strtod(value, &end) : NAN;
	if (isnan(rate) || (*end && !text_equal(end, "%")))
		return false;
	rate /= *end ? 100 : 1;
	if (!(rate >= 0.999e-9 && rate < 1))
		return false;
	*(double *)place = rate;
	return true;
}

static bool set_path(void *place, const char *value)
{
	char **path = place;
	if (!value[0])
		return false;
	free(*path);
	*path = xstrdup(value);
	return true;
}

#define AT(member) offsetof(struct dedup_spec, member)
static const struct setting settings[] = {
    {"ids", "a number of ids from 1 to 100G, as ids=50M", set_ids, AT(ids)},
    {"rate", "a share from 0.0000001% to less than 100%, as rate=0.1%", set_rate, AT(rate)},
    {"window", "a time from 1ms to 3650d, as window=24h", set_window, AT(window_ms)},
    {"slices", "a number from 1 to 31, as slices=5", set_slices, AT(slices)},
    {"path", "a folder, as path=/var/lib/billing/dedup", set_path, AT(path)},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

void dedup_spec_init(struct dedup_spec *spec)
{
	*spec = (struct dedup_spec){.rate = 0.001, .slices = 5, .window_ms = 86400000};
}

void dedup_spec_finish(struct dedup_spec *spec)
{
	free(spec->path);
	spec->path = NULL;
}

static bool refuse_name(const char *name, struct err *err)
{
	char known[200] = "";
	for (int i = 0; i < SETTINGS; i++)
		snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
		    settings[i].name);
	return err_set(
	    err, ERR_CONFIG, "'%.40s' is no setting of dedup; there are: %s", name, known);
}

bool dedup_spec_set(struct dedup_spec *spec, const char *name, const char *value, struct err *err)
{
	for (int i = 0; i < SETTINGS; i++) {
		const struct setting *setting = &settings[i];
		if (!text_equal(setting->name, name))
			continue;
		return setting->set((char *)spec + setting->offset, value) ||
		       err_set(err, ERR_CONFIG, "%s '%.40s' is refused; it is %s", name, value,
			   setting->example);
	}
	return refuse_name(name, err);
}

static bool check_memory(const struct dedup_spec *spec, struct err *err)
{
	struct bloom_plan plan = bloom_plan((uint64_t)spec->ids, spec->rate, (int)spec->slices);
	int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	if (pages <= 0 || page <= 0 || plan.filter_bytes / (uint64_t)page < (uint64_t)pages)
		return true;
	return err_set(err, ERR_CONFIG,
	    "ids=%" PRId64 " at rate=%g%% needs a filter of %" PRIu64
	    " MiB, and this machine has %" PRId64 " MiB: lower ids or window, or raise rate",
	    spec->ids, spec->rate * 100, plan.filter_bytes >> 20, pages * (page >> 10) >> 10);
}

bool dedup_spec_check(const struct dedup_spec *spec, struct err *err)
{
	if (!spec->ids)
		return err_set(err, ERR_CONFIG,
		    "ids is missing: how many different ones come in a window, as ids=50M");
	if (spec->window_ms < spec->slices)
		return err_set(err, ERR_CONFIG,
		    "window=%" PRId64 "ms is shorter than its %" PRId64
		    " slices of a millisecond; lengthen window or lower slices",
		    spec->window_ms, spec->slices);
	return check_memory(spec, err);
}

static bool parse_word(struct dedup_spec *spec, char *word, struct err *err)
{
	char *value = strchr(word, '=');
	if (!value)
		return err_set(err, ERR_CONFIG, "'%.40s' has no value; write it as ids=50M", word);
	*value = '\0';
	return dedup_spec_set(spec, word, value + 1, err);
}

static bool parse_store(struct dedup_spec *spec, const char *word, struct err *err)
{
	for (int i = 0; i < DEDUP_STORES; i++) {
		spec->store = (enum dedup_store)i;
		if (word && text_equal(dedup_store_names[i], word))
			return true;
	}
	return err_set(err, ERR_CONFIG, "'%.40s' is no store of dedup; begin the line with: bloom",
	    word ? word : "");
}

bool dedup_spec_parse(const char *line, struct dedup_spec *ret_spec, struct err *err)
{
	owned_text char *copy = xstrdup(line);
	char *place, *word = strtok_r(copy, " \t", &place);
	dedup_spec_init(ret_spec);
	if (!parse_store(ret_spec, word, err))
		return false;
	while ((word = strtok_r(NULL, " \t", &place)))
		if (!parse_word(ret_spec, word, err))
			return false;
	return dedup_spec_check(ret_spec, err);
}
