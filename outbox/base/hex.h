#pragma once
/*
 * Bytes in hexadecimal, and UUIDs as text. Writes lower case, reads either case.
 */
#include <stdbool.h>
#include <stddef.h>

int hex_digit(char c); /* -1: not a digit */

/* Writes two digits for each byte, no NUL; returns their end. */
char *hex_write(char *at, const void *bytes, size_t size);
/* Reads 2 * size digits. False: one of the characters is not a digit. */
bool hex_read(const char *digits, size_t size, void *ret_bytes);

enum { UUID_BYTES = 16, UUID_TEXT = 36 };
/* Writes the UUID with dashes (RFC 9562), no NUL. */
void uuid_write(const void *uuid, char text[UUID_TEXT]);
/* The reverse of uuid_write. False: the text is not a UUID. */
bool uuid_read(const char *text, size_t length, void *ret_uuid);
