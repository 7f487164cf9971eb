#pragma once
/* A database for each test of a program, on the server that TEST_DATABASE_URL names. */

/*
 * Makes a database with the tables in this schema and returns its address, which the caller gives
 * to live_database_drop. Returns NULL, and prints the reason, if the server refuses. The first call
 * applies all migrations; later ones copy its database, which costs a small part of that, so every
 * call of a program must name the same schema.
 */
char *live_database_make(const char *schema);
/* Ends its sessions, and frees the address. NULL: does nothing. */
void live_database_drop(char *address);
