/*
 * Collects figures with their bounds, and prints them as a table and as JSON. [collecting] has the
 * calls of the kinds, [printing] the two forms.
 */
#include "bench.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kafka_conf.h"
#include "sql_bench.h"
#include "text.h"

/* --- collecting ------------------------------------------------------------------------------ */

static struct bench_figure *add_figure(
    struct bench *bench, const char *name, const char *unit, double value)
{
	struct bench_figure *figure;

	bench->figures =
	    xrealloc(bench->figures, (size_t)(bench->figure_count + 1) * sizeof *bench->figures);
	figure = &bench->figures[bench->figure_count++];
	*figure = (struct bench_figure){.value = value, .reference = NAN, .judged = NAN};
	text_copy(figure->name, sizeof figure->name, name);
	text_copy(figure->unit, sizeof figure->unit, unit);
	bench_say("%s: %.4g %s", name, value, unit);
	return figure;
}

static void judge_figure(struct bench_figure *figure, double judged, const char *as, char relation,
    double bound, bool saturated)
{
	figure->judged = judged;
	figure->judged_as = as;
	figure->relation = relation;
	figure->bound = bound;
	/* the writer did not hold the rate, so the figure says nothing about the relay */
	if (saturated)
		figure->verdict = BENCH_SATURATED;
	else if (relation)
		figure->verdict =
		    (relation == '<' ? judged <= bound : judged >= bound) ? BENCH_OK : BENCH_NOT;
}

void bench_tell(struct bench *bench, const char *name, const char *unit, double value)
{
	add_figure(bench, name, unit, value);
}

void bench_tell_beside(
    struct bench *bench, const char *name, const char *unit, double value, double reference)
{
	add_figure(bench, name, unit, value)->reference = reference;
}

void bench_judge_ratio(struct bench *bench, const char *name, const char *unit, double value,
    double reference, char relation, double bound)
{
	struct bench_figure *figure = add_figure(bench, name, unit, value);

	figure->reference = reference;
	judge_figure(figure, value / reference, "ratio", relation, bound, false);
}

void bench_tell_ratio(
    struct bench *bench, const char *name, const char *unit, double value, double reference)
{
	bench_judge_ratio(bench, name, unit, value, reference, 0, NAN);
}

void bench_tell_difference(
    struct bench *bench, const char *name, const char *unit, double value, double reference)
{
	struct bench_figure *figure = add_figure(bench, name, unit, value);

	figure->reference = reference;
	judge_figure(figure, value - reference, "difference", 0, NAN, false);
}

void bench_judge_difference(struct bench *bench, const char *name, const char *unit, double value,
    double reference, double most, bool saturated)
{
	struct bench_figure *figure = add_figure(bench, name, unit, value);

	figure->reference = reference;
	judge_figure(figure, value - reference, "difference", '<', most, saturated);
}

void bench_judge(struct bench *bench, const char *name, const char *unit, double value,
    char relation, double bound)
{
	judge_figure(add_figure(bench, name, unit, value), value, "value", relation, bound, false);
}

void bench_judge_pairs(struct bench *bench, const char *name, const char *unit,
    const double *values, const double *references, int count, char relation, double bound)
{
	double ratios[BENCH_MOST_RUNS];
	struct bench_figure *figure;

	/* by pairs: a machine that slows down between two pairs changes both values of one */
	for (int pair = 0; pair < count; pair++)
		ratios[pair] = values[pair] / references[pair];
	figure = add_figure(bench, name, unit, bench_median_of(values, count));
	figure->reference = bench_median_of(references, count);
	judge_figure(figure, bench_median(ratios, count), "ratio", relation, bound, false);
}

void bench_judge_beside(struct bench *bench, const char *name, const char *unit,
    const double *values, const double *references, int count, char relation, double bound)
{
	struct bench_figure *figure = add_figure(bench, name, unit, bench_median_of(values, count));

	figure->reference = bench_median_of(references, count);
	judge_figure(figure, figure->value, "value", relation, bound, false);
}

static int compare_doubles(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

double bench_median(double *values, int count)
{
	qsort(values, (size_t)count, sizeof *values, compare_doubles);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double bench_median_of(const double *values, int count)
{
	double sorted[BENCH_MOST_RUNS];

	memcpy(sorted, values, (size_t)count * sizeof *values);
	return bench_median(sorted, count);
}

bool bench_is_good(const struct bench *bench)
{
	for (int i = 0; i < bench->figure_count; i++)
		if (bench->figures[i].verdict == BENCH_NOT)
			return false;
	return true;
}

/* --- the machine ----------------------------------------------------------------------------- */

void bench_proc_value(const char *path, const char *name, char *value, size_t size)
{
	owned_file FILE *file = fopen(path, "re");
	char line[512];

	text_copy(value, size, "unknown");
	while (file && fgets(line, sizeof line, file)) {
		char *at = text_starts(line, name) ? strchr(line, ':') : NULL;

		if (!at)
			continue;
		at += 1 + strspn(at + 1, " \t");
		at[strcspn(at, "\n")] = '\0';
		text_copy(value, size, at);
		return;
	}
}

static json_t *machine_json(struct bench *bench)
{
	char cpu[128], memory[64], date[32];
	time_t now = time(NULL);
	struct tm fields;
	struct err err;
	OWNED(owned_pg_result_destroy)
	struct pg_result *server =
	    bench->pg ? pg_query(bench->pg, sql_bench_server, NULL, 0, &err) : NULL;

	bench_proc_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
	bench_proc_value("/proc/meminfo", "MemTotal", memory, sizeof memory);
	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &fields));
	return json_pack("{ss, ss, si, ss, ss, ss, ss, ss, ss, ss}", "date", date, "outbox_relay",
	    RELAY_VERSION, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN), "cpu", cpu, "memory",
	    memory, "librdkafka", kafka_conf_library(), "postgres",
	    server ? pg_value(server, 0, 0) : "-", "fsync", server ? pg_value(server, 0, 1) : "-",
	    "synchronous_commit", server ? pg_value(server, 0, 2) : "-", "shared_buffers",
	    server ? pg_value(server, 0, 3) : "-");
}

/* --- printing -------------------------------------------------------------------------------- */

static const char *const verdict_words[] = {
    [BENCH_TOLD] = "", [BENCH_OK] = "ok", [BENCH_NOT] = "NOT", [BENCH_SATURATED] = "saturated"};

/* Prints the significant digits of a figure. */
static const char *figure_text(double value, char text[24])
{
	if (isnan(value))
		text[0] = '\0';
	else
		snprintf(text, 24, "%.*f",
		    value >= 1000 || value == 0 ? 0
		    : value >= 10               ? 1
						: 2,
		    value);
	return text;
}

/* A figure whose value is bounded also shows its ratio to the reference. */
static double shown_ratio(const struct bench_figure *figure)
{
	return text_equal(figure->judged_as, "value") ? figure->value / figure->reference
						      : figure->judged;
}

static void print_figure(const struct bench_figure *figure)
{
	char value[24], reference[24], judged[24], bound[32] = "";

	if (figure->relation)
		snprintf(bound, sizeof bound, "%s %.4g", figure->relation == '<' ? "≤" : "≥",
		    figure->bound);
	printf("%-46s %-8s %11s %11s %10s  %-10s  %s\n", figure->name, figure->unit,
	    figure_text(figure->value, value), figure_text(figure->reference, reference),
	    figure_text(shown_ratio(figure), judged), bound, verdict_words[figure->verdict]);
}

void bench_print(struct bench *bench)
{
	json_t *about = machine_json(bench);
	const char *name;
	json_t *value;

	json_object_foreach(about, name, value)
	{
		if (json_is_integer(value))
			printf("%-20s %lld\n", name, (long long)json_integer_value(value));
		else
			printf("%-20s %s\n", name, json_string_value(value));
	}
	json_decref(about);
	printf("\n%-46s %-8s %11s %11s %10s  %-8s  %s\n", "", "unit", "relay", "beside",
	    "ratio/diff", "bound", "");
	for (int i = 0; i < bench->figure_count; i++)
		print_figure(&bench->figures[i]);
}

static void set_figure_json(json_t *object, const char *name, double value)
{
	json_object_set_new(object, name, isnan(value) ? json_null() : json_real(value));
}

static json_t *figure_json(const struct bench_figure *figure)
{
	json_t *object = json_pack("{ss, ss}", "name", figure->name, "unit", figure->unit);

	set_figure_json(object, "value", figure->value);
	set_figure_json(object, "beside", figure->reference);
	if (figure->judged_as)
		set_figure_json(object, figure->judged_as, figure->judged);
	if (figure->relation) {
		json_object_set_new(
		    object, "bound", json_string(figure->relation == '<' ? "at most" : "at least"));
		set_figure_json(object, "bound_value", figure->bound);
		json_object_set_new(object, "verdict", json_string(verdict_words[figure->verdict]));
	}
	return object;
}

void bench_print_json(struct bench *bench)
{
	json_t *figures = json_array(), *object;

	for (int i = 0; i < bench->figure_count; i++)
		json_array_append_new(figures, figure_json(&bench->figures[i]));
	object = json_pack("{so, so}", "machine", machine_json(bench), "figures", figures);
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(object);
}
