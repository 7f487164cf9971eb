#include "dedup_spec.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "bloom_filter.h"
#include "bloom_size.h"
#include "cleanup.h"
#include "counting_filter.h"
#include "spec_words.h"
#include "text.h"
#include "units.h"
#include "wheel_table.h"

const char *const dedup_kind_names[DEDUP_ALL_KINDS + 1] = {
    [DEDUP_BLOOM] = "bloom",
    [DEDUP_EXACT] = "exact",
    [DEDUP_COUNTING] = "counting",
    [DEDUP_BITMAP] = "bitmap",
    [DEDUP_REDIS] = "redis",
    [DEDUP_POSTGRES] = "postgres",
    [DEDUP_SEQUENCE] = "sequence",
    [DEDUP_CLAIMS_REDIS] = "redis",
    [DEDUP_CLAIMS_POSTGRES] = "postgres",
};
static const char *const form_names[DEDUP_FORMS + 1] = {
    "", "plain", "hash", "key", "bitmap", "bloom"};
static const char *const confirm_names[DEDUP_CONFIRMS + 1] = {"log", "sql"};

/* Sets of stores. */
enum {
	BLOOM = 1 << DEDUP_BLOOM,
	EXACT = 1 << DEDUP_EXACT,
	COUNTING = 1 << DEDUP_COUNTING,
	BITMAP = 1 << DEDUP_BITMAP,
	REDIS = 1 << DEDUP_REDIS,
	POSTGRES = 1 << DEDUP_POSTGRES,
	SEQUENCE = 1 << DEDUP_SEQUENCE,
	ALL = (1 << DEDUP_KINDS) - 1,
	CLAIMS_REDIS = 1 << DEDUP_CLAIMS_REDIS,
	CLAIMS_POSTGRES = 1 << DEDUP_CLAIMS_POSTGRES,
	CLAIMS = CLAIMS_REDIS | CLAIMS_POSTGRES,
};

static const int64_t most_ids = INT64_C(100000000000), most_window = INT64_C(3650) * 86400 * 1000;
enum { MOST_LOCKS = 1000 };
enum { MOST_SLICES = BLOOM_FILTERS / 2 - 1, MOST_LEASE = 86400 * 1000, MOST_TIMEOUT = 600 * 1000 };

struct setting {
	const char *name, *example;
	int stores; /* that take it */
	bool (*set)(void *place, const char *value);
	size_t offset;
};

static bool set_spec_number(
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
	return set_spec_number(place, value, units_count, 1, most_ids);
}

static bool set_window(void *place, const char *value)
{
	return set_spec_number(place, value, units_duration, 1, most_window);
}

static bool set_slices(void *place, const char *value)
{
	return set_spec_number(place, value, units_none, 1, MOST_SLICES);
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

/* Nothing, or more than 100 %, but for 0: never. */
static bool set_alarm(void *place, const char *value)
{
	if (!text_equal(value, "0"))
		return set_rate(place, value);
	*(double *)place = 0;
	return true;
}

static bool set_hot(void *place, const char *value)
{
	return set_spec_number(place, value, units_count, 1, 16 << 20);
}

static bool set_pending(void *place, const char *value)
{
	return set_spec_number(place, value, units_count, 1, 16 << 20);
}

static bool set_lease(void *place, const char *value)
{
	return set_spec_number(place, value, units_duration, 100, MOST_LEASE);
}

static bool set_timeout(void *place, const char *value)
{
	return set_spec_number(place, value, units_duration, 10, MOST_TIMEOUT);
}

static bool set_word(void *place, const char *value, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (value[0] && text_equal(words[i], value)) {
			*(int *)place = i;
			return true;
		}
	return false;
}

static bool set_form(void *place, const char *value)
{
	return set_word(place, value, form_names);
}

static bool set_confirm(void *place, const char *value)
{
	return set_word(place, value, confirm_names);
}

static bool set_spec_text(void *place, const char *value)
{
	char **text = place;
	if (!value[0])
		return false;
	free(*text);
	*text = xstrdup(value);
	return true;
}

/* It goes into keys of servers, where others read it. */
static bool set_spec_name(void *place, const char *value)
{
	size_t length =
	    strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
	return length <= 100 && !value[length] && set_spec_text(place, value);
}

#define AT(member) offsetof(struct dedup_spec, member)
static const struct setting settings[] = {
    {"ids", "a number of ids from 1 to 100G, as ids=50M", BLOOM | EXACT | COUNTING | BITMAP | REDIS,
	set_ids, AT(ids)},
    {"rate", "a share from 0.0000001% to less than 100%, as rate=0.1%", BLOOM | COUNTING | REDIS,
	set_rate, AT(rate)},
    {"alarm", "a share as rate is, as alarm=0.2%, or 0", BLOOM, set_alarm, AT(alarm)},
    {"window", "a time from 1ms to 3650d, as window=24h",
	BLOOM | EXACT | COUNTING | REDIS | POSTGRES, set_window, AT(window_ms)},
    {"slices", "a number from 1 to 31, as slices=5", BLOOM | COUNTING, set_slices, AT(slices)},
    {"hot", "a number of ids from 1 to 16M, as hot=4096", BLOOM | REDIS, set_hot, AT(hot)},
    {"pending", "a number of ids from 1 to 16M, as pending=100k", ALL, set_pending, AT(pending)},
    {"path", "a folder, as path=/var/lib/billing/dedup",
	BLOOM | EXACT | COUNTING | BITMAP | SEQUENCE, set_spec_text, AT(path)},
    {"form", "plain or hash of a bitmap, key, bitmap or bloom of redis", BITMAP | REDIS, set_form,
	AT(form)},
    {"confirm", "log, or sql with a query", BLOOM, set_confirm, AT(confirm)},
    {"query", "a statement, as query=\"select id from orders where id = any($1)\"", BLOOM,
	set_spec_text, AT(query)},
    {"dsn", "a connection string, as dsn=\"host=/run/postgresql dbname=billing\"",
	BLOOM | POSTGRES | CLAIMS_POSTGRES, set_spec_text, AT(dsn)},
    {"schema", "a schema of the database, as schema=outbox", POSTGRES | CLAIMS_POSTGRES,
	set_spec_text, AT(schema)},
    {"url", "the server's address, as url=redis://127.0.0.1:6379/0", REDIS | CLAIMS_REDIS,
	set_spec_text, AT(url)},
    {"name", "up to 100 letters, digits, dots, dashes and underscores, as name=billing",
	REDIS | POSTGRES | CLAIMS, set_spec_name, AT(name)},
    {"lease", "a time from 100ms to 1d, as lease=30s", REDIS | CLAIMS, set_lease, AT(lease_ms)},
    {"timeout", "a time from 10ms to 10m, as timeout=2s", BLOOM | REDIS | POSTGRES | CLAIMS,
	set_timeout, AT(timeout_ms)},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

void dedup_spec_init(struct dedup_spec *spec)
{
	*spec = (struct dedup_spec){
	    .rate = 0.001, .alarm = -1, .slices = 5, .lease_ms = 30000, .timeout_ms = 2000};
}

void dedup_spec_finish(struct dedup_spec *spec)
{
	free(spec->path);
	free(spec->dsn);
	free(spec->query);
	free(spec->schema);
	free(spec->url);
	free(spec->name);
	dedup_spec_init(spec);
}

static void list_settings(enum dedup_kind kind, char *known, size_t size)
{
	known[0] = '\0';
	for (int i = 0; i < SETTINGS; i++)
		if (settings[i].stores & 1 << kind)
			snprintf(known + strlen(known), size - strlen(known), "%s%s",
			    known[0] ? ", " : "", settings[i].name);
}

static bool refuse_dedup_setting(const struct dedup_spec *spec, const char *name, struct err *err)
{
	char known[200];
	list_settings(spec->kind, known, sizeof known);
	return err_set(err, ERR_CONFIG, "'%.40s' is no setting of '%s'; there are: %s",
	    spec_word_shown(name), dedup_kind_names[spec->kind], known);
}

bool dedup_spec_set(struct dedup_spec *spec, const char *name, const char *value, struct err *err)
{
	if (!value && text_equal(name, "lossy")) {
		spec->lossy = true;
		return true;
	}
	if (!value)
		return err_set(err, ERR_CONFIG, "'%.40s' has no value; write it as ids=50M",
		    spec_word_shown(name));
	for (int i = 0; i < SETTINGS; i++) {
		const struct setting *setting = &settings[i];
		if (!text_equal(setting->name, name) || !(setting->stores & 1 << spec->kind))
			continue;
		return setting->set((char *)spec + setting->offset, value) ||
		       err_set(err, ERR_CONFIG, "%s '%.40s' is refused; it is %s", name,
			   spec_word_shown(value), setting->example);
	}
	return refuse_dedup_setting(spec, name, err);
}

/* What it has in memory when it is as full as planned; 0: as much as the kernel likes. */
static uint64_t memory_of(const struct dedup_spec *spec)
{
	bool counts = spec->kind == DEDUP_COUNTING;
	if (spec->kind == DEDUP_EXACT)
		return (uint64_t)spec->ids * (sizeof(struct wheel_entry) + sizeof(uint32_t));
	if (spec->kind != DEDUP_BLOOM && !counts)
		return 0;
	struct bloom_plan plan = bloom_plan((uint64_t)spec->ids, spec->rate, (int)spec->slices,
	    counts ? COUNTING_PLACES : BLOOM_PLACES);
	return plan.filter_bytes;
}

static bool check_memory(const struct dedup_spec *spec, struct err *err)
{
	bool exact = spec->kind == DEDUP_EXACT;
	uint64_t bytes = memory_of(spec);
	int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	if (exact && spec->ids > WHEEL_MOST)
		return err_set(err, ERR_CONFIG,
		    "ids=%" PRId64
		    " is more than the %u that 'exact' has places for: lower ids, or "
		    "choose bloom",
		    spec->ids, WHEEL_MOST);
	if (pages <= 0 || page <= 0 || bytes / (uint64_t)page < (uint64_t)pages)
		return true;
	return err_set(err, ERR_CONFIG,
	    "ids=%" PRId64 "%s needs %" PRIu64 " MiB of memory, and this machine has %" PRId64
	    " MiB: lower ids, as a shorter window has, %s",
	    spec->ids, exact ? "" : " at this rate", bytes >> 20, pages * (page >> 10) >> 10,
	    exact ? "or choose bloom" : "or raise rate");
}

/* --- what belongs together ------------------------------------------------------------------ */

/* Settings without which a store cannot be, by its form. */
struct need {
	int stores;
	enum dedup_form form; /* or NONE: any */
	const char *name, *why;
};
static const struct need needs[] = {
    {BLOOM | EXACT | COUNTING | BITMAP, DEDUP_FORM_NONE, "ids",
	"how many different ones come in a window, as ids=50M"},
    {REDIS | CLAIMS_REDIS, DEDUP_FORM_NONE, "url", "the server, as url=redis://127.0.0.1:6379"},
    {REDIS | POSTGRES | CLAIMS, DEDUP_FORM_NONE, "name",
	"others that use the server are kept apart by it, as name=billing"},
    {REDIS, DEDUP_FORM_BITMAP, "ids", "how many different ones come, as ids=50M"},
    {REDIS, DEDUP_FORM_BLOOM, "ids", "how many different ones come, as ids=50M"},
};

static bool is_given(const struct dedup_spec *spec, const char *name)
{
	if (text_equal(name, "ids"))
		return spec->ids > 0;
	if (text_equal(name, "url"))
		return spec->url;
	return spec->name;
}

static bool check_needs(const struct dedup_spec *spec, struct err *err)
{
	for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
		const struct need *need = &needs[i];
		if (!(need->stores & 1 << spec->kind) || (need->form && need->form != spec->form) ||
		    is_given(spec, need->name))
			continue;
		return err_set(err, ERR_CONFIG, "%s is missing: %s", need->name, need->why);
	}
	return true;
}

static enum dedup_form default_form(enum dedup_kind kind)
{
	return kind == DEDUP_BITMAP  ? DEDUP_FORM_PLAIN
	       : kind == DEDUP_REDIS ? DEDUP_FORM_KEY
				     : DEDUP_FORM_NONE;
}

static bool check_form(const struct dedup_spec *spec, struct err *err)
{
	bool of_bitmap = spec->form == DEDUP_FORM_PLAIN || spec->form == DEDUP_FORM_HASH;
	if (spec->form == DEDUP_FORM_NONE || of_bitmap == (spec->kind == DEDUP_BITMAP))
		return true;
	return err_set(err, ERR_CONFIG, "form=%s is none of '%s'; there are: %s",
	    form_names[spec->form], dedup_kind_names[spec->kind],
	    spec->kind == DEDUP_BITMAP ? "plain, hash" : "key, bitmap, bloom");
}

/* A false positive of these would drop a message for good: nobody gets one unasked. */
static bool check_lossy(const struct dedup_spec *spec, struct err *err)
{
	bool lossy = spec->kind == DEDUP_COUNTING || spec->form == DEDUP_FORM_HASH ||
		     spec->form == DEDUP_FORM_BITMAP || spec->form == DEDUP_FORM_BLOOM;
	const char *store = dedup_kind_names[spec->kind];
	const char *equals = spec->form ? " form=" : "", *form = form_names[spec->form];
	if (lossy && !spec->lossy)
		return err_set(err, ERR_CONFIG,
		    "'%s%s%s' takes some new ids for done ones, whose messages are lost: write "
		    "'%s lossy%s%s' if that may be, or choose bloom or exact",
		    store, equals, form, store, equals, form);
	return lossy || !spec->lossy ||
	       err_set(err, ERR_CONFIG, "'%s%s%s' is not lossy: leave the word out", store, equals,
		   form);
}

static bool check_confirm(const struct dedup_spec *spec, struct err *err)
{
	bool sql = spec->confirm == DEDUP_CONFIRM_SQL;
	if (sql && !spec->query)
		return err_set(err, ERR_CONFIG,
		    "query is missing: what confirm=sql asks, as query=\"select id from orders "
		    "where "
		    "id = any($1)\"");
	return sql || spec->kind != DEDUP_BLOOM || (!spec->query && !spec->dsn) ||
	       err_set(
		   err, ERR_CONFIG, "query and dsn are for confirm=sql: add it, or leave them out");
}

/* What Redis keeps by id has a time to live, and can be released by others: what is hot would not
 * know of it. */
static bool check_window(struct dedup_spec *spec, struct err *err)
{
	bool by_id = spec->form == DEDUP_FORM_KEY;
	if (spec->kind == DEDUP_REDIS && !by_id && spec->window_ms)
		return err_set(err, ERR_CONFIG,
		    "window is refused with form=%s, which forgets nothing: leave it out, or "
		    "choose "
		    "form=key",
		    form_names[spec->form]);
	if (spec->window_ms == 0)
		spec->window_ms = 86400000;
	if (spec->hot == 0 && !by_id)
		spec->hot = 4096;
	return spec->window_ms >= spec->slices ||
	       err_set(err, ERR_CONFIG,
		   "window=%" PRId64 "ms is shorter than its %" PRId64
		   " slices of a millisecond; lengthen window or lower slices",
		   spec->window_ms, spec->slices);
}

/* Each that is pending in a Postgres has a lock there, of which a server has a few thousand. */
static bool check_pending(struct dedup_spec *spec, struct err *err)
{
	int64_t most = spec->kind == DEDUP_POSTGRES ? MOST_LOCKS : 100000;
	if (spec->pending == 0)
		spec->pending = most;
	return spec->kind != DEDUP_POSTGRES || spec->pending <= most ||
	       err_set(err, ERR_CONFIG,
		   "pending=%" PRId64 " is refused: each takes a lock of the server, and at most "
		   "are %" PRId64 " of 'postgres'; lower it, or open more stores",
		   spec->pending, most);
}

bool dedup_spec_check(struct dedup_spec *spec, struct err *err)
{
	if (!check_form(spec, err))
		return false;
	if (spec->form == DEDUP_FORM_NONE)
		spec->form = default_form(spec->kind);
	if (spec->alarm < 0)
		spec->alarm = spec->rate * 2;
	return check_pending(spec, err) && check_window(spec, err) && check_needs(spec, err) &&
	       check_lossy(spec, err) && check_confirm(spec, err) && check_memory(spec, err);
}

/* --- the line ------------------------------------------------------------------------------- */

static bool parse_dedup_word(struct dedup_spec *spec, char *word, struct err *err)
{
	char *value = strchr(word, '=');
	if (value)
		*value++ = '\0';
	return dedup_spec_set(spec, word, value, err);
}

/* One of the kinds from first to last. */
static bool parse_kind(
    struct dedup_spec *spec, const char *word, int first, int last, struct err *err)
{
	char known[100] = "";
	for (int i = first; i <= last; i++) {
		spec->kind = (enum dedup_kind)i;
		if (word && text_equal(dedup_kind_names[i], word))
			return true;
		snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
		    known[0] ? ", " : "", dedup_kind_names[i]);
	}
	return err_set(err, ERR_CONFIG, "'%.40s' is no store of %s; begin the line with one of: %s",
	    word ? spec_word_shown(word) : "", first == 0 ? "dedup" : "claims", known);
}

static bool parse_dedup_line(
    const char *line, int first, int last, struct dedup_spec *ret_spec, struct err *err)
{
	owned_text char *copy = xstrdup(line);
	char *rest = copy, *word;
	dedup_spec_init(ret_spec);
	if (!spec_word_next(&rest, &word, err) || !parse_kind(ret_spec, word, first, last, err))
		return false;
	while (spec_word_next(&rest, &word, err))
		if (!word)
			return dedup_spec_check(ret_spec, err);
		else if (!parse_dedup_word(ret_spec, word, err))
			return false;
	return false;
}

bool dedup_spec_parse(const char *line, struct dedup_spec *ret_spec, struct err *err)
{
	return parse_dedup_line(line, 0, DEDUP_KINDS - 1, ret_spec, err);
}

bool dedup_spec_parse_claims(const char *line, struct dedup_spec *ret_spec, struct err *err)
{
	if (!parse_dedup_line(line, DEDUP_CLAIMS_REDIS, DEDUP_ALL_KINDS - 1, ret_spec, err))
		return false;
	if (ret_spec->timeout_ms > ret_spec->lease_ms / 3)
		ret_spec->timeout_ms = ret_spec->lease_ms / 3;
	return true;
}
