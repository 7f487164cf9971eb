#pragma once
/* The allocator of the process: jemalloc if the program links it, else that of libc. */

/*
 * Returns freed memory to the kernel. Call it after much memory was freed, for example when a
 * client of Kafka is closed. It may take milliseconds. Any thread may call it.
 */
void memory_give_back(void);
