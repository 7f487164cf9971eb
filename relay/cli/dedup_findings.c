#include "dedup_findings.h"

#include <inttypes.h>
#include <stdio.h>
#include "field.h"

/* The name of a file that is not ours may hold any bytes. */
static void add_foreign_name(struct text *out, const char *name)
{
	owned_text char *copy = xstrdup(name);
	uint32_t code;
	for (char *at = copy; *at; at++) {
		/* 0: no character begins here; the rest of the name may still be readable */
		int length = text_utf8(at, &code);
		if (length)
			at += length - 1;
		else
			*at = '?';
	}
	text_add_line(out, copy);
}

void dedup_finding_print(const struct dedup_finding *finding)
{
	OWNED(text_finish) struct text line = {0};
	text_add(&line, finding->harmless ? "harmless: " : "damaged: ");
	add_foreign_name(&line, finding->file);
	if (finding->byte >= 0)
		text_addf(&line, " at byte %" PRId64, finding->byte);
	printf("%s: %s\n", text_string(&line), finding->what);
}

json_t *dedup_finding_json(const struct dedup_finding *finding)
{
	OWNED(text_finish) struct text file = {0};
	json_t *byte = finding->byte < 0 ? json_null() : json_integer(finding->byte);
	add_foreign_name(&file, finding->file);
	return json_pack("{s:s, s:o, s:b, s:s}", "file", text_string(&file), "byte", byte,
	    "harmless", finding->harmless, "what", finding->what);
}

void dedup_counters_add(struct dedup_counters *counters, const struct dedup_part *part)
{
	counters->all += part->counters;
	counters->full += part->saturated;
}

void dedup_counters_print(const struct dedup_counters *counters)
{
	if (!counters->all)
		return;
	printf("saturated %" PRIu64 " of %" PRIu64 " counters%s\n", counters->full, counters->all,
	    counters->full ? ": they keep their value until their slice ends, so that a released "
			     "id may stay done; write counter=8, or raise ids"
			   : "");
}

void dedup_holder_print(const struct state_folder_view *folder)
{
	if (folder->holder > 0)
		printf("in use    by process %ld: of what it has not written yet nothing is said\n",
		    folder->holder);
	else if (folder->holder < 0)
		puts("in use    by a process: of what it has not written yet nothing is said");
	else
		puts("in use    by nobody");
}
