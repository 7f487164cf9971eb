#pragma once
/* "HOST:PID": the name of this process as the owner of a job. The caller frees. */
char *job_owner_name(void);
