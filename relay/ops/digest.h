#pragma once
/*
 * 64 bits for a sequence of fields: two sequences that differ in a field, or in where one ends and
 * the next begins, have the same value once in 2^64 by chance. No defence against an adversary.
 */
#include <stddef.h>
#include <stdint.h>

#define DIGEST_BEGIN UINT64_C(0x9e3779b97f4a7c15)

/* The state with one more field; bytes NULL is a field of its own kind, other than an empty one. */
uint64_t digest_add(uint64_t state, const void *bytes, size_t length);
