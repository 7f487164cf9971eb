#include "transaction_pause.h"

int64_t transaction_pause_next(int64_t pause_us, int64_t first_report_us)
{
	/* in proportion, so that slow clusters have no more refusals than fast ones */
	if (first_report_us >= TRANSACTION_RETRY_US)
		pause_us += 500 + pause_us / 4;
	else
		pause_us -= 1 + pause_us / 1024;
	if (pause_us < 0)
		return 0;
	/* after a refusal the next try comes then anyway */
	return pause_us < TRANSACTION_RETRY_US ? pause_us : TRANSACTION_RETRY_US;
}
