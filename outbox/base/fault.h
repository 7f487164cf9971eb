#pragma once
/*
 * Fault points: named steps between two writes. In a build with -Dfault_points=true the environment
 * variable OUTBOX_RELAY_FAULT=name[:n] makes the process SIGKILL itself at the n-th (default:
 * first) passage of that point, OUTBOX_RELAY_FAULT_STOP=name[:n] makes it SIGSTOP itself there, and
 * OUTBOX_RELAY_FAULT_LIST=FILE appends the name of each passed point to a file, once. In other
 * builds a fault point does nothing.
 */
#ifdef FAULT_POINTS
void fault_point(const char *name);
#else
#define fault_point(name) ((void)0)
#endif
