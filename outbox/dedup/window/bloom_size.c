#include "bloom_size.h"

#include <math.h>
#include "bloom_filter.h"

/* The mean, over all lines, of a power of the share of set bits. Beyond 12 standard deviations a
 * Poisson distribution is smaller than a double can show. */
static double mean_power_of_set(double load, int places, int power)
{
	double sum = 0;
	double low = floor(load - 12 * sqrt(load) - 12), high = load + 12 * sqrt(load) + 60;
	for (double j = low < 0 ? 0 : low; j <= high; j++) {
		double chance = exp(j * log(load) - load - lgamma(j + 1));
		double set = -expm1(j * log1p(-1.0 / places));
		sum += chance * pow(set, power);
	}
	return sum < 1 ? sum : 1;
}

double bloom_rate(double load, int places)
{
	return mean_power_of_set(load, places, BLOOM_BITS);
}

double bloom_rate_deviation(double load, uint64_t lines, int places)
{
	double mean = bloom_rate(load, places);
	double variance = mean_power_of_set(load, places, 2 * BLOOM_BITS) - mean * mean;
	return variance > 0 ? sqrt(variance / (double)lines) : 0;
}

double bloom_load(double rate, int places)
{
	double low = 1e-9, high = 4096;
	for (int i = 0; i < 80; i++) {
		double middle = sqrt(low * high);
		if (bloom_rate(middle, places) <= rate)
			low = middle;
		else
			high = middle;
	}
	return low;
}

double bloom_classic_bits(double rate)
{
	return -log(rate) / (M_LN2 * M_LN2);
}

int bloom_classic_hashes(double rate)
{
	return (int)fmax(1, round(-log2(rate)));
}

static uint64_t lines_for(uint64_t ids, double rate, int places)
{
	return (uint64_t)ceil((double)ids / bloom_load(rate, places));
}

struct bloom_plan bloom_plan(uint64_t ids, double rate, int slices, int places)
{
	struct bloom_plan plan = {
	    .slices = slices, .places = places, .ids = ids / (uint64_t)slices};
	plan.ids += ids % (uint64_t)slices != 0;
	plan.share = -expm1(log1p(-rate) / (slices + 1));
	plan.lines = lines_for(plan.ids, plan.share * BLOOM_PLANNED, places);
	plan.rate = bloom_rate((double)plan.ids / (double)plan.lines, places);
	plan.filter_bytes = plan.lines * BLOOM_LINE * (uint64_t)(slices + 1);
	plan.bits_an_id = (double)plan.filter_bytes * 8 / (double)ids;
	return plan;
}

double bloom_share(const struct bloom_plan *plan, int sub)
{
	return plan->share * (sub ? (1 - BLOOM_PLANNED) * pow(0.5, sub) : BLOOM_PLANNED);
}

uint64_t bloom_sub_lines(const struct bloom_plan *plan, int sub, uint64_t ids)
{
	return lines_for(ids, bloom_share(plan, sub), plan->places);
}

uint64_t bloom_room(const struct bloom_plan *plan, int sub, uint64_t lines)
{
	double ids = (double)lines * bloom_load(bloom_share(plan, sub), plan->places);
	return ids < 1 ? 1 : (uint64_t)ids;
}
