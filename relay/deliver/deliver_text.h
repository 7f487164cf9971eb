#pragma once
/*
 * Checks texts of CloudEvents against what the libraries of all languages read: some refuse
 * the whole event for one attribute that is not as the specification has it.
 */
#include <stdbool.h>

/* RFC 3339 within the years 1 to 9999 of UTC, without leap seconds and small letters. */
bool deliver_text_is_time(const char *text);

/* A URI reference of RFC 3986: `source`. The empty text is one. */
bool deliver_text_is_uri_reference(const char *text);

/* The same with a scheme: `dataschema`. */
bool deliver_text_is_uri(const char *text);

/* type/subtype; name=value; …: `datacontenttype`. */
bool deliver_text_is_media_type(const char *text);
