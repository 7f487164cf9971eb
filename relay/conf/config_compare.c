#include <string.h>
#include "cleanup.h"
#include "config_rows.h"
#include "client_files.h"
#include "config_value.h"
#include "text.h"

static const char *item_name(enum config_kind kind, const void *item)
{
	return config_kinds[kind].size ? *(char *const *)item : NULL;
}

/* "publisher.main.shards: restart to apply"; key NULL: the whole section. */
static void add_difference(
    struct text *out, enum config_kind kind, const char *name, const char *key, const char *what)
{
	text_addf(out, "%s%s%s%s%s: %srestart to apply\n", config_kinds[kind].word, name ? "." : "",
	    name ? name : "", key ? "." : "", key ? key : "", what);
}

static const struct kafka_property *find_property(
    const struct kafka_settings *kafka, const char *name)
{
	for (int i = 0; i < kafka->property_count; i++)
		if (strcmp(kafka->properties[i].name, name) == 0)
			return &kafka->properties[i];
	return NULL;
}

/* The clients read a file again themselves (client_files.h), always the one that they began with.
 */
static bool property_differs(const struct kafka_property *here, const struct kafka_property *there)
{
	if (client_files_rereads(here) || client_files_rereads(there))
		return !text_equal(here->file, there->file);
	return strcmp(here->value, there->value) != 0;
}

/* Properties of `from` that `to` does not have or, if `changed`, has with another value. */
static void compare_properties(const struct kafka_settings *from, const struct kafka_settings *to,
    bool changed, const char *what, struct text *out)
{
	for (int i = 0; i < from->property_count; i++) {
		const struct kafka_property *here = &from->properties[i];
		const struct kafka_property *there = find_property(to, here->name);
		if (!there || (changed && property_differs(here, there)))
			add_difference(
			    out, CONFIG_KAFKA, from->name, here->name, there ? "" : what);
	}
}

/* The written values are equal, but the effective ones differ. */
static void compare_in_flight(
    const struct config_publisher *running, const struct config_publisher *fresh, struct text *out)
{
	if (running->settings.max_in_flight == fresh->settings.max_in_flight &&
	    running->settings.delivery == fresh->settings.delivery &&
	    publisher_settings_in_flight(&running->settings) !=
		publisher_settings_in_flight(&fresh->settings))
		add_difference(out, CONFIG_PUBLISHER, running->settings.name, "max_in_flight", "");
}

/* The value comes from a file that the program itself reads again. */
static bool is_read_again(const void *item, const struct config_row *row)
{
	owned_text char *key = xformat("%s_file", row->key);
	const struct config_row *file = config_rows_find(row->kind, key);

	return file && file->offset && *(char *const *)((const char *)item + file->offset);
}

static void compare_items(
    enum config_kind kind, const void *running, const void *fresh, struct text *out)
{
	for (int i = 0; i < config_row_count; i++) {
		const struct config_row *row = &config_rows[i];
		/* a reloadable key is applied at once, so it needs no restart */
		if (row->kind == kind && !row->reloadable &&
		    !config_value_equal(running, fresh, row) &&
		    !(is_read_again(running, row) && is_read_again(fresh, row)))
			add_difference(out, kind, item_name(kind, running), row->key, "");
	}
	if (kind == CONFIG_PUBLISHER)
		compare_in_flight(running, fresh, out);
	if (kind != CONFIG_KAFKA)
		return;

	/* values that differ are reported by the first call only */
	compare_properties(running, fresh, true, "removed, ", out);
	compare_properties(fresh, running, false, "added, ", out);
}

void config_compare(
    const struct config *running, const struct config *fresh, struct text *ret_fixed)
{
	for (int k = 0; k < CONFIG_KINDS; k++) {
		enum config_kind kind = (enum config_kind)k;

		if (config_kinds[kind].reloadable)
			continue;

		for (int i = 0; i < config_rows_items(running, kind); i++) {
			const void *item = config_rows_item(running, kind, i);
			const char *name = item_name(kind, item);
			const void *other = config_rows_item_named(fresh, kind, name);
			if (other)
				compare_items(kind, item, other, ret_fixed);
			else
				add_difference(ret_fixed, kind, name, NULL, "removed, ");
		}

		/* sections in both were compared above; here only new ones are left */
		for (int i = 0; i < config_rows_items(fresh, kind); i++) {
			const char *name = item_name(kind, config_rows_item(fresh, kind, i));
			if (!config_rows_item_named(running, kind, name))
				add_difference(ret_fixed, kind, name, NULL, "added, ");
		}
	}
}
