#include <string.h>
#include "config_rows.h"
#include "config_value.h"
#include "kafka_conf.h"
#include "kafka_defaults.h"

static const char sample_head[] =
    "# Configuration of outbox-relay. A line that begins with # or ; is a comment, and so is the\n"
    "# rest of a line behind a ; that follows a blank. Settings are shown with their defaults.\n"
    "#\n"
    "# Durations take ms, s, m, h or d; sizes take B, KiB, MiB or GiB.\n"
    "# The environment wins over this file: OUTBOX_RELAY_PUBLISHER_LEASE=10s.\n";

/* Comment lines of at most 100 columns. */
static void add_comment(struct text *out, const char *sentence)
{
	size_t column = 0;

	while (*sentence) {
		size_t length = strcspn(sentence, " ");
		if (column && column + 1 + length > 100) {
			text_add(out, "\n");
			column = 0;
		}
		text_addf(out, "%s%.*s", column ? " " : "# ", (int)length, sentence);
		column += length + (column ? 1 : 2);
		sentence += length + (sentence[length] == ' ');
	}
	text_add(out, "\n");
}

static void print_sample_key(struct text *out, const struct config_row *row)
{
	struct text comment = {0};

	text_addf(&comment, "%s (", row->help);
	config_value_describe(&comment, row);
	text_addf(&comment, "%s)", row->reloadable ? "; SIGHUP applies it" : "");
	text_add(out, "\n");
	add_comment(out, comment.data);
	text_addf(out, "#%s =%s%s\n", row->key, *row->default_value ? " " : "", row->default_value);
	text_finish(&comment);
}

/* A section that needs a name is printed as an example, and so are its keys. */
static void add_heading(struct text *out, const struct config_kind_row *kind)
{
	if (kind->named)
		text_addf(out, "#[%s \"orders\"]\n", kind->word);
	else
		text_addf(out, "[%s]\n", kind->word);
}

void config_print_sample(struct text *out)
{
	text_add(out, sample_head);
	for (int kind = 0; kind < CONFIG_KINDS; kind++) {
		text_add(out, "\n");
		add_comment(out, config_kinds[kind].help);
		add_heading(out, &config_kinds[kind]);
		for (int i = 0; i < config_row_count; i++)
			if ((int)config_rows[i].kind == kind)
				print_sample_key(out, &config_rows[i]);
	}
}

static const char reference_head[] =
    "# Configuration\n"
    "\n"
    "This page is written by the program; `outbox-relay config --print-sample` writes the same as "
    "a file to begin with.\n"
    "\n"
    "## The file\n"
    "\n"
    "An INI file, named by `--config FILE` or the variable `OUTBOX_RELAY_CONFIG`. A line that "
    "begins with `#` or `;` is a comment, and so is the rest of a line behind a `;` that follows "
    "a blank: a value with such a semicolon belongs in a file of its own (below). An unknown "
    "section or key, a section or a key given twice, a value of another type or out of its range "
    "are errors that name file and line; exit status 78.\n"
    "\n"
    "A section without a name is the one named `main`. Further ones are named: `[postgres \"x\"]`, "
    "`[kafka \"y\"]`, `[publisher \"z\"]`; a name is up to 63 of a-z, A-Z, 0-9, `_`, `.` and `-`, "
    "that "
    "of a publisher up to 40 of a-z, 0-9, `_` and `-`. A kind of section that is not there at all "
    "exists once, as `main`, with its defaults; but where there are `[deliver \"x\"]` and none of "
    "`[postgres]`, `[publisher]` and `[lookback \"y\"]`, there is no database and no publisher. A "
    "`[topic "
    "\"orders\"]` always has a name, up to "
    "249 "
    "of the same letters as Kafka has it, and a topic without a section has the defaults. "
    "`[check \"x\"]`, `[lookback \"orders\"]` and `[deliver \"billing\"]` have names as well; "
    "without any of them there is no look-back, and nothing is delivered by HTTP.\n"
    "\n"
    "Durations are whole numbers with a unit: `ms`, `s`, `m`, `h`, `d`. Sizes have `B`, `KiB`, "
    "`MiB`, `GiB` (1024) or `kB`, `MB`, `GB` (1000). Only 0 needs no unit.\n"
    "\n"
    "## The environment\n"
    "\n"
    "No file is needed. `OUTBOX_RELAY_<SECTION>_<KEY>` sets a key of a section `main`, "
    "`OUTBOX_RELAY_<SECTION>_<NAME>_<KEY>` one of a named section that the file declares, in upper "
    "case, dots and dashes as underscores: `OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS`, or "
    "`OUTBOX_RELAY_TOPIC_SHOP_ORDERS_ON_REFUSAL` for `[topic \"shop.orders\"]`. The environment "
    "wins over the file. A variable with this prefix that matches nothing is an error.\n"
    "\n"
    "For the database `main`: `OUTBOX_RELAY_POSTGRES_DSN`, else `dsn` or `dsn_file` of the file, "
    "else `DATABASE_URL`, else libpq's own variables (`PGHOST`, `PGUSER`, ...). "
    "`OUTBOX_RELAY_CONFIG` names the file and is not a setting.\n"
    "\n"
    "## Secrets\n"
    "\n"
    "`dsn_file`, `secret_file` and the like, and `<property>_file` in a `[kafka]` section "
    "(`sasl.password_file`, "
    "`ssl.key.password_file`), name a file that holds the value; line ends at its end are left "
    "out. A relative path is looked up in `$CREDENTIALS_DIRECTORY` (systemd's `LoadCredential=`) "
    "when that is set.\n"
    "\n"
    "## Reload\n"
    "\n"
    "`SIGHUP` reads the file again. What is marked below is applied at once; for the rest that "
    "changed the log says that it needs a restart. A file with a mistake changes nothing.\n";

/* Escapes bars, which would end the cell. */
static void add_cell(struct text *out, const char *content)
{
	for (; *content; content++)
		text_addf(out, "%s%c", *content == '|' ? "\\" : "", *content);
}

static void print_reference_key(struct text *out, const struct config_row *row)
{
	struct text values = {0};

	config_value_describe(&values, row);
	text_addf(out, "| `%s` | ", row->key);
	add_cell(out, values.data);
	if (*row->default_value)
		text_addf(out, " | `%s` | ", row->default_value);
	else
		text_add(out, " | empty | ");
	text_addf(out, "%s | ", row->reloadable ? "yes" : "no");
	add_cell(out, row->help);
	text_add(out, " |\n");
	text_finish(&values);
}

/* The other values that a [kafka] section may give. */
static void add_allowed_values(struct text *out, const struct kafka_default *row)
{
	const char *allowed = kafka_conf_allowed(row->name);

	if (!allowed)
		text_add(out, "any");
	else if (!*allowed || (row->value && text_equal(allowed, row->value)))
		text_add(out, "none");
	else
		text_addf(out, "`%s`", allowed);
}

static void print_kafka_defaults(struct text *out)
{
	static const char *const clients[] = {[KAFKA_DEFAULT_ALL] = "all",
	    [KAFKA_DEFAULT_PRODUCER] = "producers",
	    [KAFKA_DEFAULT_TRANSACTIONS] = "producers with `exactly-once`"};

	text_add(out,
	    "\nThe program sets these properties itself; all others have librdkafka's defaults. A "
	    "section may set a property to the values in *other values*. `outbox-relay doctor` "
	    "prints "
	    "the values that are in force.\n"
	    "\n| property | default | other values | clients | why |\n|---|---|---|---|---|\n");
	for (int i = 0; i < kafka_default_count; i++) {
		const struct kafka_default *row = &kafka_defaults[i];

		text_addf(out, "| `%s` | ", row->name);
		text_addf(
		    out, row->value ? "`%s` | " : "%s | ", row->value ? row->value : "computed");
		add_allowed_values(out, row);
		text_addf(out, " | %s | %s |\n", clients[row->side], row->why);
	}
}

void config_print_reference(struct text *out)
{
	text_add(out, reference_head);
	for (int kind = 0; kind < CONFIG_KINDS; kind++) {
		text_addf(out, "\n## [%s%s]\n\n%s\n", config_kinds[kind].word,
		    config_kinds[kind].named ? " \"NAME\"" : "", config_kinds[kind].help);
		if (config_kinds[kind].open) {
			print_kafka_defaults(out);
			continue;
		}
		text_add(out, "\n| key | value | default | reload | meaning |\n"
			      "|---|---|---|---|---|\n");
		for (int i = 0; i < config_row_count; i++)
			if ((int)config_rows[i].kind == kind)
				print_reference_key(out, &config_rows[i]);
	}
}
