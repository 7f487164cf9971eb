#include <string.h>
#include "config_rows.h"
#include "config_value.h"
#include "kafka_conf.h"
#include "kafka_defaults.h"

static const char sample_head[] =
    "# Configuration of outbox-relay, with every setting at its default. A line that begins with "
    "# or\n"
    "# ; is a comment, and a ; after a space starts a comment too.\n"
    "#\n"
    "# Durations have the unit ms, s, m, h or d; sizes have B, KiB, MiB or GiB.\n"
    "# Environment variables override this file: OUTBOX_RELAY_PUBLISHER_LEASE=10s.\n";

/* Comment lines of at most 100 columns. */
static void add_comment(struct text *out, const char *sentence)
{
	size_t column = 0;

	while (*sentence) {
		size_t length = strcspn(sentence, " ");
		/* a word that is longer than the line stays whole */
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

static const char reference_title[] =
    "# Configuration\n"
    "\n"
    "`outbox-relay config --print-reference` prints this page, and `outbox-relay config "
    "--print-sample` prints the same settings as a commented configuration file.\n";

const char config_file_explained[] =
    "\n"
    "## The file\n"
    "\n"
    "The configuration is an INI file. `--config FILE` or the variable `OUTBOX_RELAY_CONFIG` "
    "names it. A line that begins with `#` or `;` is a comment. A `;` after a space starts a "
    "comment too, so a value with a space and a `;` belongs in a separate file "
    "([secrets](#secrets)). These are errors, with file and line in the message and the exit "
    "status 78: an unknown section or key, a section or key that is given twice, and a value of "
    "the wrong type or out of its range.\n"
    "\n"
    "Sections have names:\n"
    "\n"
    "- `[postgres]`, `[kafka]` and `[publisher]` without a name are the section `main`. Further "
    "sections are named: `[postgres \"x\"]`, `[kafka \"y\"]`, `[publisher \"z\"]`. A name has at "
    "most 63 characters of a-z, A-Z, 0-9, `_`, `.` and `-`. The name of a publisher has at most "
    "40 characters of a-z, 0-9, `_` and `-`.\n"
    "- If the file has no section of one of these kinds, there is one section `main` with the "
    "defaults. Exception: a file with `[deliver \"x\"]` and without `[postgres]`, `[publisher]` "
    "and `[lookback \"y\"]` uses no database and has no publisher.\n"
    "- `[topic \"orders\"]` always has a name, with at most 249 of the same characters. A topic "
    "without a section has the defaults.\n"
    "- `[check \"x\"]`, `[lookback \"orders\"]`, `[deliver \"billing\"]` and `[token \"shop\"]` "
    "always have a name. Without a `[lookback]` section there is no look-back, and without a "
    "`[deliver]` section nothing is delivered over HTTP.\n"
    "\n"
    "A duration is a whole number with a unit: `ms`, `s`, `m`, `h` or `d`, for example `90s`. A "
    "size has the unit `B`, `KiB`, `MiB`, `GiB` (powers of 1024) or `kB`, `MB`, `GB` (powers of "
    "1000), for example `24MiB`. Only 0 needs no unit.\n"
    "\n"
    "## The environment\n"
    "\n"
    "Environment variables override the file. Without named sections no file is needed.\n"
    "\n"
    "- `OUTBOX_RELAY_<SECTION>_<KEY>` sets a key of a section without a name (the sections "
    "`main`, and `[api]`, `[admin]`, `[log]`), for example "
    "`OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS`.\n"
    "- `OUTBOX_RELAY_<SECTION>_<NAME>_<KEY>` sets a key of a named section that the file "
    "declares, for example `OUTBOX_RELAY_TOPIC_SHOP_ORDERS_ON_REFUSAL` for `[topic "
    "\"shop.orders\"]`.\n"
    "- Names are in upper case, with underscores for dots and dashes.\n"
    "- A variable with the prefix `OUTBOX_RELAY_` that matches nothing is an error.\n"
    "\n"
    "For the database `main` the relay uses the first of these that is set: "
    "`OUTBOX_RELAY_POSTGRES_DSN`, `dsn` or `dsn_file` in the file, `DATABASE_URL`, and the "
    "variables of libpq (`PGHOST`, `PGUSER`, ...). `OUTBOX_RELAY_CONFIG` names the file and is "
    "not a setting.\n"
    "\n"
    "## Secrets\n"
    "\n"
    "A key that ends in `_file` names a file that holds the value, for example `dsn_file`, "
    "`secret_file`, and `sasl.password_file` or `ssl.key.password_file` in a `[kafka]` section. "
    "Line ends at the end of the file are ignored. If `$CREDENTIALS_DIRECTORY` is set (by "
    "`LoadCredential=` of systemd), relative paths are relative to it.\n"
    "\n"
    "The relay reads the files of a `[kafka]` section again every 5 seconds and at a reload, and "
    "uses new content without a restart: files of keys that begin with `ssl.` or `sasl.`, and the "
    "files that `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, "
    "`ssl.keystore.location` and `ssl.crl.location` name.\n"
    "\n"
    "Without a restart, too, it uses changed content of `headers_file` and `client_secret_file`, "
    "and of the certificates, keys and authorities that `[check]`, `[deliver]`, `[api]` and "
    "`[admin]` name (docs/guide/secure.md). A reload reads `rules_file`. Files of other keys are "
    "read at the start only.\n"
    "\n"
    "## Reload\n"
    "\n"
    "`SIGHUP` makes the relay read the file again. It applies changed keys with *yes* in the "
    "column *reload* at once. For every other changed key it logs that a restart is needed. If "
    "the file has an error, nothing changes.\n";

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
	if (row->by_pace)
		text_add(out, " | by `pace` | ");
	else if (*row->default_value)
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
	    "\n"
	    "The relay sets the properties below. Any other property has the default of "
	    "librdkafka, "
	    "unless the section sets it. "
	    "A section may set a property to one of its *other values*. `outbox-relay doctor` "
	    "prints the effective values.\n"
	    "\n"
	    "| property | default | other values | clients | why |\n"
	    "|---|---|---|---|---|\n");
	for (int i = 0; i < kafka_default_count; i++) {
		const struct kafka_default *row = &kafka_defaults[i];

		text_addf(out, "| `%s` | ", row->name);
		text_addf(
		    out, row->value ? "`%s` | " : "%s | ", row->value ? row->value : "computed");
		add_allowed_values(out, row);
		text_addf(out, " | %s | %s |\n", clients[row->side], row->why);
	}
}

/* Links to the headings of the sections, as Markdown names their anchors. */
static void print_section_list(struct text *out)
{
	text_add(out, "\nSections:");
	for (int kind = 0; kind < CONFIG_KINDS; kind++)
		text_addf(out, "%s [%s](#%s%s)", kind ? "," : "", config_kinds[kind].word,
		    config_kinds[kind].word, config_kinds[kind].named ? "-name" : "");
	text_add(out, ".\n");
}

void config_print_reference(struct text *out)
{
	text_add(out, reference_title);
	print_section_list(out);
	text_add(out, config_file_explained);

	for (int kind = 0; kind < CONFIG_KINDS; kind++) {
		text_addf(out, "\n## [%s%s]\n\n%s\n", config_kinds[kind].word,
		    config_kinds[kind].named ? " \"NAME\"" : "", config_kinds[kind].help);
		/* an open kind has no keys of its own to list */
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
