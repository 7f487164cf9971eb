#include "kafka_settings.h"

#include <stdlib.h>
#include "text.h"

void kafka_settings_add(
    struct kafka_settings *settings, const char *name, const char *value, const char *origin)
{
	size_t size = (size_t)(settings->property_count + 1) * sizeof *settings->properties;

	settings->properties = xrealloc(settings->properties, size);
	settings->properties[settings->property_count++] = (struct kafka_property){
	    .name = xstrdup(name), .value = xstrdup(value), .origin = xstrdup(origin)};
}

void kafka_settings_set_file(struct kafka_settings *settings, const char *path)
{
	settings->properties[settings->property_count - 1].file = xstrdup(path);
}

void kafka_settings_finish(struct kafka_settings *settings)
{
	for (int i = 0; i < settings->property_count; i++) {
		free(settings->properties[i].name);
		free(settings->properties[i].value);
		free(settings->properties[i].file);
		free(settings->properties[i].origin);
	}
	free(settings->properties);
	free(settings->name);
	*settings = (struct kafka_settings){0};
}
