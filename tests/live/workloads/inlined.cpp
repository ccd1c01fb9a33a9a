// SPDX-License-Identifier: Apache-2.0
// inlined SECONDS: all its time passes in shapes::area(), which is inlined into shapes::Sum<int>::add(), which is
// inlined into shapes::total(int).
#include "work.h"

namespace shapes
{

inline __attribute__((always_inline)) uint64_t area(uint64_t n)
{
	return SPIN(n);
}

template <typename T> struct Sum {
	T value;
	inline __attribute__((always_inline)) uint64_t add(uint64_t n)
	{
		return area(n) + value;
	}
};

KEEP uint64_t total(int n)
{
	Sum<int> sum{ n };
	return sum.add(static_cast<uint64_t>(n));
}

} // namespace shapes

int main(int argc, char **argv)
{
	double end = argc > 1 ? atof(argv[1]) : 0.5;
	uint64_t sum = 0;

	while (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) < end)
		sum += shapes::total(100000);
	return sum == 42;
}
