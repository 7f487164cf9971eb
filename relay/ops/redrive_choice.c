#include "redrive_choice.h"

#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "moment.h"
#include "text.h"

void redrive_choice_init(struct redrive_choice *choice)
{
	*choice = (struct redrive_choice){
	    .filter = {.from_us = INT64_MIN, .to_us = INT64_MAX, .limit = INT64_MAX}};
}

void redrive_choice_finish(struct redrive_choice *choice)
{
	for (size_t i = 0; i < sizeof choice->texts / sizeof *choice->texts; i++)
		free(choice->texts[i]);
	free(choice->ends);
	redrive_choice_init(choice);
}

static const char *const conditions[] = {"id", "key", "topic", "reason"};

static const char **condition_of(struct redrive_filter *filter, size_t i)
{
	const char **const places[] = {&filter->id, &filter->key, &filter->topic, &filter->reason};

	return places[i];
}

bool redrive_choice_add(
    struct redrive_choice *choice, const char *name, const char *value, struct err *err)
{
	bool from = text_equal(name, "from");

	for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++)
		if (text_equal(conditions[i], name)) {
			free(choice->texts[i]);
			choice->texts[i] = xstrdup(value);
			*condition_of(&choice->filter, i) = choice->texts[i];
			return true;
		}
	if (!from && !text_equal(name, "to"))
		return err_set(err, ERR_REJECT,
		    "%.60s is no member of filter: it takes id, key, topic, reason, from and to",
		    name);
	return moment_parse(value, from ? &choice->filter.from_us : &choice->filter.to_us, err) ||
	       err_prefix(err, "%s", name);
}

bool redrive_place_parse(const char *text, struct redrive_place *ret_place)
{
	const char *colon = text ? strchr(text, ':') : NULL;
	owned_text char *number = colon ? xformat("%.*s", (int)(colon - text), text) : NULL;
	int64_t partition;

	if (!number || !text_to_int64(number, 0, INT32_MAX, &partition) ||
	    !text_to_int64(colon + 1, 0, INT64_MAX - 1, &ret_place->offset))
		return false;
	ret_place->partition = (int32_t)partition;
	return true;
}

void redrive_choice_ends(struct redrive_choice *choice, const char *text)
{
	if (!choice->ends)
		choice->ends = xcalloc(1, sizeof *choice->ends);
	while (*text) {
		size_t length = strcspn(text, ",");
		owned_text char *place = xformat("%.*s", (int)length, text);
		struct redrive_place end;

		if (redrive_place_parse(place, &end)) {
			choice->ends = xrealloc(
			    choice->ends, (size_t)(end.partition + 1) * sizeof *choice->ends);
			while (choice->end_count <= end.partition)
				choice->ends[choice->end_count++] = 0;
			choice->ends[end.partition] = end.offset;
		}
		text += length + (text[length] == ',');
	}
}
