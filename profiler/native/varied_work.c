/* SPDX-License-Identifier: Apache-2.0 */
/* A little of everything that a core's counters tell apart, for trials of which of them count. */
#include <stdint.h>

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define STEPS        512
#define RARE         16

/* Instructions that no interpreter executes, as far as this core has them; their results are of no use. */
static void execute_rare_instructions(void)
{
#ifdef __aarch64__
	unsigned long has = getauxval(AT_HWCAP);

	__asm__ volatile("movi v0.4s, #0\n\tmovi v1.4s, #0\n\t"
	                 "fmul s0, s0, s1\n\tfmul d0, d0, d1\n\tadd v0.4s, v0.4s, v1.4s\n\tfmul v0.4s, v0.4s, v1.4s\n\t"
	                 "isb\n\tdsb ish\n\tdmb ish"
	                 :
	                 :
	                 : "v0", "v1", "memory");
	if (has & HWCAP_FPHP)
		__asm__ volatile(".arch_extension fp16\n\tmovi v0.4s, #0\n\tfmul h0, h0, h0" : : : "v0");
	if (has & HWCAP_AES)
		__asm__ volatile(".arch_extension crypto\n\taese v0.16b, v1.16b\n\taesmc v0.16b, v0.16b" : : : "v0");
	/* Under predicates with all, none and one of the elements. */
	if (has & HWCAP_SVE)
		__asm__ volatile(
			".arch_extension sve\n\tptrue p0.s\n\tpfalse p1.b\n\tptrue p2.s, vl1\n\tmov z0.s, #0\n\t"
			"fmul z0.s, p0/m, z0.s, z0.s\n\tfmul z0.s, p1/m, z0.s, z0.s\n\t"
			"fmul z0.s, p2/m, z0.s, z0.s\n\tfmul z0.d, z0.d, z0.d"
			:
			:
			: "v0", "p0", "p1", "p2");
#endif
}

/* Events of these instructions, by their codes in Arm's manual (DDI 0487), and the feature that each needs. */
#ifdef __aarch64__
static const struct {
	uint16_t code;
	unsigned long needs;
} executed[] = {
	{ 0x0074, HWCAP_ASIMD }, /* ASE_SPEC */
	{ 0x0077, HWCAP_AES },   /* CRYPTO_SPEC */
	{ 0x007c, 0 },           /* ISB_SPEC */
	{ 0x007d, 0 },           /* DSB_SPEC */
	{ 0x007e, 0 },           /* DMB_SPEC */
	{ 0x8014, HWCAP_FPHP },  /* FP_HP_SPEC */
	{ 0x8018, HWCAP_FP },    /* FP_SP_SPEC */
	{ 0x80c1, HWCAP_FP },    /* FP_FIXED_OPS_SPEC */
	{ 0x8006, HWCAP_SVE },   /* SVE_INST_SPEC */
	{ 0x8074, HWCAP_SVE },   /* SVE_PRED_SPEC */
	{ 0x8075, HWCAP_SVE },   /* SVE_PRED_EMPTY_SPEC */
	{ 0x8076, HWCAP_SVE },   /* SVE_PRED_FULL_SPEC */
	{ 0x8077, HWCAP_SVE },   /* SVE_PRED_PARTIAL_SPEC */
	{ 0x80c0, HWCAP_SVE },   /* FP_SCALE_OPS_SPEC */
};
#endif

/* Writes the codes of the events that rare instructions make happen on this core, as many as fit; returns how many. */
__attribute__((visibility("default"))) uint64_t tdprof_varied_events(uint16_t *codes, uint64_t room)
{
	uint64_t count = 0;

#ifdef __aarch64__
	unsigned long has = getauxval(AT_HWCAP);

	for (uint64_t i = 0; i < COUNT(executed) && count < room; i++)
		if ((has & executed[i].needs) == executed[i].needs)
			codes[count++] = executed[i].code;
#else
	(void)codes;
	(void)room;
#endif
	return count;
}

/* Knuth's generator for MMIX; its upper bits are such that neither prefetchers nor branch predictors follow them. */
static uint64_t next(uint64_t state)
{
	return state * 6364136223846793005u + 1442695040888963407u;
}

/*
 * Loads that wait for each other and stores that do not, all over `memory`, then rare instructions. `state` says where;
 * returns it for the next call.
 */
__attribute__((visibility("default"))) uint64_t tdprof_vary_work(uint8_t *memory, uint64_t size, uint64_t state)
{
	for (int i = 0; i < STEPS; i++)
		state = next(state + memory[(state >> 32) % size]);
	for (int i = 0; i < STEPS; i++) {
		state = next(state);
		memory[(state >> 32) % size] = (uint8_t)i;
	}
	for (int i = 0; i < RARE; i++)
		execute_rare_instructions();
	return state;
}
