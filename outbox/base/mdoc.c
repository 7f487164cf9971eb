#include "mdoc.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LINE_BYTES = 80 };

/* One character, so that man(1) shows it as it is, also where a reader copies it. */
static void add_roff(struct text *page, char character)
{
	switch (character) {
	case '\\':
		text_add(page, "\\e");
		break;
	case '-':
		text_add(page, "\\-");
		break;
	case '\'':
		text_add(page, "\\(aq");
		break;
	case '`':
		text_add(page, "\\(ga");
		break;
	case '^':
		text_add(page, "\\(ha");
		break;
	case '~':
		text_add(page, "\\(ti");
		break;
	default:
		text_append(page, &character, 1);
	}
}

static void add_literal(struct text *page, const char *at, size_t length)
{
	for (size_t i = 0; i < length; i++)
		add_roff(page, at[i]);
}

void mdoc_section(struct text *page, const char *title)
{
	text_add(page, ".Sh ");
	for (; *title; title++)
		text_addf(page, "%c", toupper((unsigned char)*title));
	text_add(page, "\n");
}

void mdoc_begin(struct text *page, const char *name, int section, const char *summary)
{
	size_t length = strlen(summary);

	text_add(page, ".Dd " RELAY_DATE "\n.Dt ");
	for (const char *at = name; *at; at++)
		text_addf(page, "%c", toupper((unsigned char)*at));
	text_addf(page, " %d\n.Os\n", section);
	mdoc_section(page, "name");
	text_addf(page, ".Nm %s\n.Nd ", name);
	while (length > 0 && summary[length - 1] == '.')
		length--;
	text_addf(page, "%c", tolower((unsigned char)summary[0]));
	text_append(page, summary + 1, length - 1);
	text_add(page, "\n");
}

/* The length of the text between two marks, from the first one on; 0: there is no second one. */
static size_t marked_length(const char *at, size_t length, char mark)
{
	const char *end = length > 1 ? memchr(at + 1, mark, length - 1) : NULL;

	return end ? (size_t)(end - at) + 1 : 0;
}

/* The length of [text](target), and of its text; 0: no link begins here. */
static size_t link_at(const char *at, size_t length, size_t *ret_text)
{
	size_t text = *at == '[' ? marked_length(at, length, ']') : 0;
	size_t target = text && text < length && at[text] == '('
			    ? marked_length(at + text, length - text, ')')
			    : 0;

	*ret_text = text ? text - 2 : 0;
	return target ? text + target : 0;
}

static bool ends_sentence(const char *at, size_t left)
{
	return left > 1 && strchr(".!?", at[0]) && at[1] == ' ';
}

/* One sentence with its marks replaced, up to `end` or the space behind it. Returns where it ends.
 */
static const char *add_sentence(struct text *line, const char *at, const char *end)
{
	while (at < end) {
		size_t left = (size_t)(end - at), text = 0;
		size_t code = *at == '`' ? marked_length(at, left, '`') : 0;
		size_t emphasis =
		    *at == '*' && left > 1 && at[1] != ' ' ? marked_length(at, left, '*') : 0;
		size_t link = link_at(at, left, &text);

		if (code || emphasis) {
			size_t all = code ? code : emphasis;

			text_add(line, code ? "\\fB" : "\\fI");
			add_literal(line, at + 1, all - 2);
			text_add(line, "\\fR");
			at += all;
		} else if (link) {
			add_literal(line, at + 1, text);
			at += link;
		} else if (ends_sentence(at, left)) {
			text_append(line, at, 1);
			return at + 2;
		} else {
			add_roff(line, *at++);
		}
	}
	return at;
}

/* Breaks the line between words, so that lines have at most 80 bytes if words allow it. */
static void add_wrapped(struct text *page, const char *line)
{
	size_t column = 0;

	while (*line) {
		size_t word = strcspn(line, " ");
		bool fits = column + 1 + word <= LINE_BYTES;

		if (column > 0)
			text_add(page, fits ? " " : "\n");
		column = column > 0 && fits ? column + 1 : 0;
		if (column == 0 && *line == '.') {
			text_add(page, "\\&"); /* else it would be a macro */
			column = 2;
		}
		text_append(page, line, word);
		column += word;
		line += word + (line[word] == ' ');
	}
	text_add(page, "\n");
}

void mdoc_sentences(struct text *page, const char *paragraph, size_t length)
{
	const char *at = paragraph, *end = paragraph + length;

	while (at < end) {
		struct text line = {0};

		at = add_sentence(&line, at, end);
		add_wrapped(page, text_string(&line));
		text_finish(&line);
	}
}

void mdoc_subsection(struct text *page, const char *title, size_t length)
{
	text_add(page, ".Ss ");
	text_append(page, title, length);
	/* a bracket at the end would be punctuation behind the title */
	text_addf(page, "%s\n", length > 0 && title[length - 1] == ']' ? "\\&" : "");
}

void mdoc_reference(struct text *page, const char *name, int section)
{
	text_addf(page, "\\fB%s\\fR(%d)\n", name, section);
}

void mdoc_markdown(struct text *page, const char *markdown)
{
	bool begun = false, list = false;

	for (const char *at = markdown; *at;) {
		size_t length = strcspn(at, "\n");
		bool item = length > 2 && at[0] == '-' && at[1] == ' ';

		if (length > 0 && list && !item)
			text_add(page, ".El\n");
		if (length > 0 && item && !list)
			text_add(page, ".Bl -bullet\n");
		if (length > 0)
			list = item;
		if (item) {
			text_add(page, ".It\n");
			mdoc_sentences(page, at + 2, length - 2);
		} else if (length > 3 && text_starts(at, "## ")) {
			mdoc_subsection(page, at + 3, length - 3);
			begun = false;
		} else if (length > 0) {
			text_add(page, begun ? ".Pp\n" : "");
			mdoc_sentences(page, at, length);
			begun = true;
		}
		at += length + (at[length] == '\n');
	}
	if (list)
		text_add(page, ".El\n");
}

void mdoc_list_begin(struct text *page)
{
	text_add(page, ".Bl -tag -width Ds\n");
}

void mdoc_list_term(struct text *page, const char *term)
{
	text_add(page, ".It \\fB");
	add_literal(page, term, strlen(term));
	text_add(page, "\\fR\n");
}

void mdoc_list_end(struct text *page)
{
	text_add(page, ".El\n");
}

void mdoc_line_to_type(struct text *page, const char *line)
{
	text_add(page, ".Bd -literal -offset indent\n");
	add_literal(page, line, strlen(line));
	text_add(page, "\n.Ed\n");
}
