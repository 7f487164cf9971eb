#pragma once
/*
 * Keys and signatures by which processes with the same configuration trust each other's texts: the
 * tokens of previews and the cookies of sessions. Internal to relay/admin. Any thread.
 */
#include "config.h"

enum { SIGNING_KEY = 32, SIGNING_MAC_TEXT = 64 };

/*
 * A digest of the purpose and of all tokens of the configuration in any order: every process that
 * serves the interface has them, and nobody else has them all.
 */
void signing_key_of_tokens(
    const struct config *config, const char *purpose, unsigned char ret_key[SIGNING_KEY]);
/* A digest of the purpose and of one secret. */
void signing_key_of_secret(
    const char *secret, const char *purpose, unsigned char ret_key[SIGNING_KEY]);

/* HMAC-SHA-256 in hexadecimal, with a NUL. */
void signing_mac(
    const unsigned char key[SIGNING_KEY], const char *text, char ret_mac[SIGNING_MAC_TEXT + 1]);
/* Is this the signature of the text? Takes the same time wherever the first difference is. */
bool signing_check(const unsigned char key[SIGNING_KEY], const char *text, const char *mac);
