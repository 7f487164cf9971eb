#pragma once
/*
 * Writes manual pages in mdoc(7), the language of man pages, from the texts that the help and the
 * reference pages are made of. These texts use a small part of Markdown: paragraphs, headings,
 * items that begin with "- ", `code`, *emphasis* and [links](target).
 */
#include <stddef.h>
#include "text.h"

/* Up to and with the section NAME. `summary` begins with a word, not with a name; it may end with a
 * full stop. */
void mdoc_begin(struct text *page, const char *name, int section, const char *summary);
void mdoc_section(struct text *page, const char *title);
void mdoc_subsection(struct text *page, const char *title, size_t length);

/* One paragraph without its line end, each sentence on a line of its own; a link is its text. */
void mdoc_sentences(struct text *page, const char *paragraph, size_t length);
/* Paragraphs, items and headings, separated by line ends. */
void mdoc_markdown(struct text *page, const char *markdown);

/* A list of terms. Terms are printed in bold, without a change. */
void mdoc_list_begin(struct text *page);
void mdoc_list_term(struct text *page, const char *term);
void mdoc_list_end(struct text *page);

/* A line that a reader can type. */
void mdoc_line_to_type(struct text *page, const char *line);

/*
 * Another page, as text. The macro Xr would make a link of it, and mandoc's lint refuses links to
 * pages that are not installed.
 */
void mdoc_reference(struct text *page, const char *name, int section);
