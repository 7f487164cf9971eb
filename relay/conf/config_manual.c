/* The manual page outbox-relay.ini(5), from the rows of the keys and of the defaults for Kafka. */
#include <string.h>
#include "cleanup.h"
#include "config_rows.h"
#include "config_value.h"
#include "kafka_defaults.h"
#include "mdoc.h"

static void add_line(struct text *page, const char *label, const char *value)
{
	OWNED(text_finish) struct text line = {0};

	text_addf(&line, "%s: %s.", label, value);
	text_add(page, ".br\n");
	mdoc_sentences(page, text_string(&line), line.length);
}

static void add_manual_key(struct text *page, const struct config_row *row)
{
	OWNED(text_finish) struct text values = {0};
	owned_text char *code = xformat("`%s`", row->default_value);

	config_value_describe(&values, row);
	mdoc_list_term(page, row->key);
	mdoc_sentences(page, row->help, strlen(row->help));
	add_line(page, "Value", text_string(&values));
	add_line(page, "Default",
	    row->by_pace          ? "by `pace`"
	    : *row->default_value ? code
				  : "empty");
	if (row->reloadable)
		add_line(page, "Reload", "SIGHUP applies a change");
}

static void add_kafka_property(struct text *page, const struct kafka_default *row)
{
	owned_text char *code = row->value ? xformat("`%s`", row->value) : NULL;

	mdoc_list_term(page, row->name);
	mdoc_sentences(page, row->why, strlen(row->why));
	add_line(page, "Default", code ? code : "computed");
}

static void add_kind(struct text *page, enum config_kind kind)
{
	owned_text char *title =
	    xformat("[%s%s]", config_kinds[kind].word, config_kinds[kind].named ? " \"NAME\"" : "");

	mdoc_subsection(page, title, strlen(title));
	mdoc_sentences(page, config_kinds[kind].help, strlen(config_kinds[kind].help));
	mdoc_list_begin(page);
	if (config_kinds[kind].open)
		for (int i = 0; i < kafka_default_count; i++)
			add_kafka_property(page, &kafka_defaults[i]);
	for (int i = 0; i < config_row_count; i++)
		if (config_rows[i].kind == kind)
			add_manual_key(page, &config_rows[i]);
	mdoc_list_end(page);
}

void config_print_manual(struct text *out)
{
	mdoc_begin(out, "outbox-relay.ini", 5, "configuration of outbox-relay");
	mdoc_section(out, "description");
	mdoc_markdown(out, config_file_explained);
	mdoc_section(out, "sections and keys");
	for (int kind = 0; kind < CONFIG_KINDS; kind++)
		add_kind(out, (enum config_kind)kind);
	mdoc_section(out, "see also");
	mdoc_reference(out, "outbox-relay", 1);
}
