/*
 * Any bytes are a slice's key log and map, or are refused, or rebuilt: nothing is read beyond their
 * ends, and what was taken in is found. The first byte says what is mended, so that what lies
 * behind a checksum is reached: 1 the head of the log, 2 its batches, 4 the bytes of a real map are
 * below those of the input, which begin at a place that the second and third byte say.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "dedup_window.h"
#include "key_log.h"
#include "text.h"

enum { SLICE = 1000, NEWEST_MS = SLICE * 1000, MOST = 1 << 16 };
static char folder[64];
static uint64_t seed;
static char *real_map;
static size_t real_length;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static struct dedup_window *open_window(void)
{
	const struct dedup_window_settings settings = {.path = folder,
	    .ids = 500,
	    .rate = 0.001,
	    .alarm = 0.002,
	    .slice_ms = SLICE,
	    .slices = 5,
	    .hot = 4096};
	struct err err;
	struct dedup_window *window = dedup_window_open(&settings, &err);
	require(window || err.message[0]);
	return window;
}

static void add(struct dedup_window *window, uint64_t number)
{
	struct err err;
	struct fingerprint hash = dedup_window_hash(window, &number, sizeof number);
	bool there = false;
	if (dedup_window_add(window, hash, (int64_t)number, NEWEST_MS, NEWEST_MS, &err))
		require(dedup_window_has(window, hash, &there, &err) && there);
}

static char *path_of(const char *name)
{
	return xformat("%s/%s", folder, name);
}

static void clear(void)
{
	DIR *list = opendir(folder);
	const struct dirent *entry;
	while (list && (entry = readdir(list)))
		if (!text_equal(entry->d_name, "window"))
			unlinkat(dirfd(list), entry->d_name, 0);
	if (list)
		closedir(list);
}

static void write_file(const char *name, const void *bytes, size_t length)
{
	owned_text char *path = path_of(name);
	FILE *file = fopen(path, "w");
	require(file && fwrite(bytes, 1, length, file) == length);
	fclose(file);
}

static void keep_real_map(void)
{
	owned_text char *path = path_of("1000.0.map");
	FILE *file = fopen(path, "r");
	require(file);
	real_map = malloc(MOST);
	real_length = fread(real_map, 1, MOST, file);
	fclose(file);
}

static void begin(void)
{
	struct err err;
	snprintf(folder, sizeof folder, "%s/fuzz.XXXXXX",
	    access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	require(mkdtemp(folder));
	struct dedup_window *window = open_window();
	seed = dedup_window_seed(window);
	for (uint64_t i = 0; i < 20; i++)
		add(window, i);
	require(dedup_window_checkpoint(window, 20, &err));
	dedup_window_close(window);
	keep_real_map();
}

static void end(void)
{
	owned_text char *window = path_of("window");
	clear();
	unlink(window);
	rmdir(folder);
}

/* --- what is mended ------------------------------------------------------------------------- */

static void put(char *at, uint64_t value)
{
	memcpy(at, &value, sizeof value);
}

static uint64_t get(const char *at)
{
	uint64_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

static void mend_head(char *log, size_t length)
{
	if (length < KEY_UNIT * KEY_FIRST_UNIT)
		return;
	memcpy(log, "obkeylog\2\0\0\0\0\0\0\0", 16);
	put(log + 16, seed);
	put(log + 24, SLICE);
	put(log + 32, 1000);
	put(log + 40, XXH3_64bits(log, 40));
	put(log + 48, KEY_FIRST_UNIT + get(log + 48) % 8);
	put(log + 56, XXH3_64bits_withSeed(log + 48, 8, seed));
}

static void mend_batches(char *log, size_t length)
{
	uint64_t units = length / KEY_UNIT, unit = KEY_FIRST_UNIT;
	while (unit < units) {
		char *lead = log + unit * KEY_UNIT;
		uint64_t count = get(lead + 16) % 9;
		if (count > units - unit - 1)
			return;
		put(lead + 8, unit);
		put(lead + 16, count);
		put(lead, XXH3_64bits_withSeed(lead + 8, (size_t)(count + 1) * KEY_UNIT - 8, seed));
		unit += count + 1;
	}
}

static void write_log(uint8_t mend, const uint8_t *bytes, size_t length)
{
	char *log = malloc(length + 1);
	memcpy(log, bytes, length);
	if (mend & 1)
		mend_head(log, length);
	if (mend & 2)
		mend_batches(log, length);
	write_file("1000.0.log", log, length);
	free(log);
}

static void write_map(uint8_t mend, size_t at, const uint8_t *bytes, size_t length)
{
	if (!(mend & 4)) {
		write_file("1000.0.map", bytes, length);
		return;
	}
	char *map = malloc(real_length);
	memcpy(map, real_map, real_length);
	at %= real_length;
	if (length > real_length - at)
		length = real_length - at;
	memcpy(map + at, bytes, length);
	write_file("1000.0.map", map, real_length);
	free(map);
}

static void use(void)
{
	struct err err;
	struct dedup_window_figures figures;
	struct dedup_window *window = open_window();
	if (!window)
		return;
	for (uint64_t i = 0; i < 40; i++)
		add(window, i * i);
	(void)!dedup_window_checkpoint(window, 50, &err);
	dedup_window_figures(window, &figures);
	dedup_window_close(window);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!folder[0]) {
		begin();
		atexit(end);
	}
	if (size < 5)
		return 0;
	size_t log = (size_t)data[3] * KEY_UNIT + data[4], rest = size - 5;
	log = log < rest ? log : rest;
	clear();
	write_log(data[0], data + 5, log);
	write_map(data[0], (size_t)data[1] << 8 | data[2], data + 5 + log, rest - log);
	use(); /* refused, or mended */
	use();
	return 0;
}
