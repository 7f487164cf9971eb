#pragma once
/* Reads the bytes of an answer of DNS, for its times to live. Pure. */
#include <stddef.h>
#include <stdint.h>
#include "errors.h"

enum { DNS_NAME = 256, DNS_RECORDS = 512 };

struct dns_record {
	int type; /* 1: A, 28: AAAA, 33: SRV */
	char owner[DNS_NAME];
	unsigned char address[16]; /* A: 4 bytes, AAAA: 16 */
	int priority, weight, port;
	char target[DNS_NAME]; /* SRV; ".": there is no such service */
	bool is_extra;         /* in the additional section */
	uint32_t ttl_s;
};

struct dns_answer {
	struct dns_record records[DNS_RECORDS];
	int count;
	/* The least of the records in the answer section, those of CNAME too. */
	uint32_t ttl_s;
};

/* False: not an answer of DNS. Records of other types and beyond DNS_RECORDS are left out. */
bool dns_answer_parse(
    const unsigned char *bytes, size_t length, struct dns_answer *ret_answer) MUST_CHECK;
