/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tools/demo records: two threads that smooth and then count the pixels of a picture.
 * `smooth` and `count_levels` run the same mixing loop over the same pixels, the first three times as often as the
 * second, so a correct profile shows them 3 : 1, with the inlined `mix` inside each and a little `fill` before.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define PIXELS  (1 << 16)
#define ROUNDS  3000
#define THREADS 2

static inline __attribute__((always_inline)) uint32_t mix(uint32_t state, uint8_t pixel)
{
	state ^= pixel;
	state *= 0x9e3779b1u;
	return state ^ state >> 15;
}

static __attribute__((noinline)) void fill(uint8_t *pixels)
{
	uint32_t state = 1;
	for (int i = 0; i < PIXELS; i++)
		pixels[i] = (uint8_t)(state = mix(state, (uint8_t)i));
}

static __attribute__((noinline)) uint32_t smooth(const uint8_t *pixels, uint32_t state)
{
	for (int pass = 0; pass < 3; pass++)
		for (int i = 0; i < PIXELS; i++)
			state = mix(state, pixels[i]);
	return state;
}

static __attribute__((noinline)) uint32_t count_levels(const uint8_t *pixels, uint32_t state)
{
	for (int i = 0; i < PIXELS; i++)
		state = mix(state, pixels[i]);
	return state;
}

static void *work(void *result)
{
	uint8_t *pixels = malloc(PIXELS);
	uint32_t state = 0;

	if (!pixels)
		abort();
	fill(pixels);
	for (int round = 0; round < ROUNDS; round++)
		state = count_levels(pixels, smooth(pixels, state));
	free(pixels);
	*(uint32_t *)result = state;
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	uint32_t results[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, &results[i]))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("done: %08x %08x\n", results[0], results[1]);
	return 0;
}
