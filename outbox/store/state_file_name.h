#pragma once
/* The names of numbered files in the folder of a local store. */
#include <stdbool.h>

/*
 * Reads the numbers from the name of a store's file: "N.S.end", with S >= 0. False: the name is
 * another one. So is a number that a store would write otherwise ("07", "+5"): the store would open
 * its own file instead, and twice if that exists.
 */
bool state_file_name_parse(const char *name, const char *end, long long *ret_number, int *ret_sub);
