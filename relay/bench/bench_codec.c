/*
 * codec: the drain with each codec of Kafka, in turns with `none`. A thread of librdkafka
 * compresses; that saves room on the brokers and in the network.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include "text.h"

static const char *const codecs[] = {"none", "gzip", "snappy", "lz4", "zstd"};
enum { CODECS = sizeof codecs / sizeof *codecs };

/* The section's properties, with the given codec. */
static struct kafka_settings settings_with_codec(
    const struct kafka_settings *usual, const char *codec)
{
	struct kafka_settings settings = {.name = xstrdup(usual->name)};

	for (int i = 0; i < usual->property_count; i++)
		/* the codec and the level of the section would decide otherwise */
		if (!text_starts(usual->properties[i].name, "compression."))
			kafka_settings_add(&settings, usual->properties[i].name,
			    usual->properties[i].value, usual->properties[i].origin);
	kafka_settings_add(&settings, "compression.codec", codec, "codec");
	return settings;
}

static void tell_codec(struct bench *bench, const char *codec, const struct bench_way *way,
    const struct bench_way *plain, int64_t rows, int64_t payload)
{
	int runs = (int)bench->options.runs;
	char name[80];

	snprintf(name, sizeof name, "drain with %s, %lld B", codec, (long long)payload);
	bench_judge_pairs(bench, name, "rows/s", way->rates, plain->rates, runs, 0, NAN);
	bench_tell_ratio(bench, "CPU of it, a million rows", "s", bench_way_cpu(way, runs, rows),
	    bench_way_cpu(plain, runs, rows));
	bench_tell_ratio(bench, "bytes of it on the broker, a record", "B",
	    bench_median_of(way->stored, runs), bench_median_of(plain->stored, runs));
}

static bool drain_codecs(struct bench *bench, const struct kafka_settings settings[CODECS],
    int64_t rows, int64_t payload, struct err *err)
{
	struct bench_way ways[CODECS];

	for (int i = 0; i < CODECS; i++) {
		ways[i] = bench_way(bench, codecs[i]);
		ways[i].place.kafka = &settings[i];
	}
	if (!bench_empty_table(bench, err) || !bench_fill(bench, 0, rows, payload, false, err) ||
	    !bench_settle(bench, err) ||
	    !bench_turns(ways, CODECS, (int)bench->options.runs, rows, err))
		return false;
	for (int i = 0; i < CODECS; i++)
		tell_codec(bench, codecs[i], &ways[i], &ways[0], rows, payload);
	return true;
}

bool bench_codec(struct bench *bench, struct err *err)
{
	const struct bench_options *options = &bench->options;
	int64_t rows = bench_short_rows(bench);
	int64_t large = options->large_rows < rows ? options->large_rows : rows;
	struct kafka_settings settings[CODECS];
	bool good;

	for (int i = 0; i < CODECS; i++)
		settings[i] = settings_with_codec(bench->kafka, codecs[i]);
	if (options->payload)
		good = drain_codecs(bench, settings, rows, options->payload, err);
	else
		good = drain_codecs(bench, settings, rows, BENCH_SMALL, err) &&
		       drain_codecs(bench, settings, large, BENCH_LARGE, err);
	for (int i = 0; i < CODECS; i++)
		kafka_settings_finish(&settings[i]);
	return good;
}
