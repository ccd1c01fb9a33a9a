// SPDX-License-Identifier: GPL-2.0
/* A64 instructions as SPE classifies them: load, store or branch, its address and its operation packet. */
#include <linux/bits.h>
#include <linux/ptrace.h>

#include "sim.h"

#define SIMD_FP         0x04 /* subclass bit: SIMD&FP register */
#define EXTENDED        0x02 /* subclass bit: atomic, exclusive or acquire/release follow */
#define ATOMIC          0x04
#define EXCLUSIVE       0x08
#define ACQUIRE_RELEASE 0x10
#define STORE           0x01

static u64 base_register(u32 insn, const struct pt_regs *regs)
{
	unsigned int n = (insn >> 5) & 31;

	return n == 31 ? regs->sp : regs->regs[n];
}

static u64 index_register(unsigned int number, const struct pt_regs *regs)
{
	return number == 31 ? 0 : regs->regs[number];
}

static s64 field(u32 insn, unsigned int low, unsigned int width)
{
	return ((s64)insn << (64 - low - width)) >> (64 - width);
}

/* Register offset: the index is taken as 32 or 64 bits, signed or not, and may be scaled by the access size. */
static u64 register_offset(u32 insn, const struct pt_regs *regs, unsigned int scale)
{
	u64 index = index_register((insn >> 16) & 31, regs);

	switch ((insn >> 13) & 7) {
	case 2: index = (u32)index; break;
	case 6: index = (s64)(s32)index; break;
	}
	return index << ((insn & BIT(12)) ? scale : 0);
}

static void set_access(struct sim_operation *op, bool load, u8 subclass, u64 address, u32 size)
{
	op->class = SIM_LOAD_STORE;
	op->load = load;
	op->store = !load;
	op->subclass = subclass | (load ? 0 : STORE);
	op->address = address;
	op->size_bytes = size;
}

static void decode_atomic(struct sim_operation *op, u32 insn, const struct pt_regs *regs)
{
	u32 size = 1 << (insn >> 30);
	bool ordered = insn & (BIT(23) | BIT(22));
	bool returns = (insn & 31) != 31;

	if ((insn & 0xf000) == 0xc000) { /* LDAPR */
		set_access(op, true, EXTENDED | ACQUIRE_RELEASE, base_register(insn, regs), size);
		return;
	}
	set_access(op, returns, EXTENDED | ATOMIC | (ordered ? ACQUIRE_RELEASE : 0), base_register(insn, regs), size);
	op->store = true; /* the store filter takes all atomics */
}

static void decode_exclusive(struct sim_operation *op, u32 insn, const struct pt_regs *regs)
{
	bool o2 = insn & BIT(23), load = insn & BIT(22), o1 = insn & BIT(21), ordered = insn & BIT(15);
	bool pair = o1 && !o2;
	bool swap = o1 && (o2 || !(insn & BIT(31))); /* CAS, CASP */
	u32 size = pair ? ((insn & BIT(30)) ? 16 : 8) : 1 << (insn >> 30);
	u8 subclass = EXTENDED | (ordered ? ACQUIRE_RELEASE : 0);

	if (swap) {
		set_access(op, true, subclass | ATOMIC | (load ? ACQUIRE_RELEASE : 0), base_register(insn, regs), size);
		op->store = true;
		return;
	}
	set_access(op, load, subclass | (o2 ? 0 : EXCLUSIVE), base_register(insn, regs), size);
}

static void decode_single(struct sim_operation *op, u32 insn, const struct pt_regs *regs)
{
	bool vector = insn & BIT(26);
	unsigned int opc = (insn >> 22) & 3;
	unsigned int scale = (insn >> 30) | (vector && (opc & 2) ? 4 : 0);
	bool load = vector ? opc & 1 : opc != 0;
	u64 address = base_register(insn, regs);

	if (insn & BIT(24)) {
		address += (u64)((insn >> 10) & 0xfff) << scale;
	} else if (insn & BIT(21)) {
		unsigned int kind = (insn >> 10) & 3;

		if (kind == 0) {
			decode_atomic(op, insn, regs);
			return;
		}
		if (kind == 2)
			address += register_offset(insn, regs, scale);
	} else if (((insn >> 10) & 3) != 1) { /* all but post-index */
		address += field(insn, 12, 9);
	}
	set_access(op, load, vector ? SIMD_FP : 0, address, 1 << scale);
}

static void decode_pair(struct sim_operation *op, u32 insn, const struct pt_regs *regs)
{
	bool vector = insn & BIT(26);
	unsigned int scale = vector ? 2 + (insn >> 30) : 2 + ((insn >> 31) & 1);
	u64 address = base_register(insn, regs);

	if (((insn >> 23) & 3) != 1) /* all but post-index */
		address += field(insn, 15, 7) * (1 << scale);
	set_access(op, insn & BIT(22), vector ? SIMD_FP : 0, address, 2 << scale);
}

static void decode_load_store(struct sim_operation *op, u32 insn, const struct pt_regs *regs)
{
	if ((insn & 0xbc000000) == 0x0c000000) { /* LD1..ST4: 8 or 16 bytes for each of up to four registers */
		static const u8 registers[16] = { 4, 1, 4, 1, 3, 1, 3, 1, 1, 1, 2, 1, 2, 1, 1, 1 };
		u32 count = registers[(insn >> 12) & 15];

		set_access(op, insn & BIT(22), SIMD_FP, base_register(insn, regs), count * ((insn & BIT(30)) ? 16 : 8));
	} else if ((insn & 0x3f000000) == 0x08000000) {
		decode_exclusive(op, insn, regs);
	} else if ((insn & 0x3b000000) == 0x18000000) { /* literal */
		bool vector = insn & BIT(26);
		u32 size = vector ? 4 << (insn >> 30) : (insn >> 30) == 1 ? 8 : 4;

		set_access(op, true, vector ? SIMD_FP : 0, regs->pc + field(insn, 5, 19) * 4, size);
	} else if ((insn & 0x3a000000) == 0x28000000) {
		decode_pair(op, insn, regs);
	} else if ((insn & 0x3f200c00) == 0x19000000) { /* LDAPUR, STLUR */
		set_access(op, insn & (BIT(23) | BIT(22)), EXTENDED | ACQUIRE_RELEASE,
		           base_register(insn, regs) + field(insn, 12, 9), 1 << (insn >> 30));
	} else if ((insn & 0x3a000000) == 0x38000000) {
		decode_single(op, insn, regs);
	}
}

static bool condition_holds(unsigned int condition, u64 pstate)
{
	bool n = pstate & PSR_N_BIT, z = pstate & PSR_Z_BIT, c = pstate & PSR_C_BIT, v = pstate & PSR_V_BIT;
	bool holds = true;

	switch (condition >> 1) {
	case 0: holds = z; break;
	case 1: holds = c; break;
	case 2: holds = n; break;
	case 3: holds = v; break;
	case 4: holds = c && !z; break;
	case 5: holds = n == v; break;
	case 6: holds = n == v && !z; break;
	case 7: return true;
	}
	return (condition & 1) ? !holds : holds;
}

static void set_branch(struct sim_operation *op, const struct pt_regs *regs, u8 subclass, bool taken, u64 target)
{
	op->class = SIM_BRANCH;
	op->subclass = subclass;
	op->conditional = subclass & 1;
	op->not_taken = !taken;
	/* Shipping cores write the fall-through address for a branch not taken. */
	op->address = taken ? target : regs->pc + 4;
}

static void decode_branch(struct sim_operation *op, u32 insn, const struct pt_regs *regs)
{
	u64 tested = index_register(insn & 31, regs);
	bool odd = insn & BIT(24); /* CBNZ, TBNZ */

	if ((insn & 0x7c000000) == 0x14000000) {
		set_branch(op, regs, 0, true, regs->pc + field(insn, 0, 26) * 4);
	} else if ((insn & 0xff000000) == 0x54000000) {
		set_branch(op, regs, 1, condition_holds(insn & 15, regs->pstate), regs->pc + field(insn, 5, 19) * 4);
	} else if ((insn & 0x7e000000) == 0x34000000) {
		bool zero = !((insn & BIT(31)) ? tested : (u32)tested);

		set_branch(op, regs, 1, zero != odd, regs->pc + field(insn, 5, 19) * 4);
	} else if ((insn & 0x7e000000) == 0x36000000) {
		bool set = tested >> (((insn >> 26) & 32) | ((insn >> 19) & 31)) & 1;

		set_branch(op, regs, 1, set == odd, regs->pc + field(insn, 5, 14) * 4);
	} else if ((insn & 0xfe000000) == 0xd6000000) {
		set_branch(op, regs, 2, true, index_register((insn >> 5) & 31, regs));
	}
}

struct sim_operation sim_decode(u32 insn, const struct pt_regs *regs)
{
	struct sim_operation op = { .class = SIM_OTHER };

	if ((insn & 0x0a000000) == 0x08000000)
		decode_load_store(&op, insn, regs);
	else if ((insn & 0x1c000000) == 0x14000000)
		decode_branch(&op, insn, regs);
	else if ((insn & 0x1fe00000) == 0x1a800000 || (insn & 0x3fe00000) == 0x3a400000) { /* CSEL, CCMP */
		op.subclass = 1;
		op.conditional = true;
		op.not_taken = !condition_holds((insn >> 12) & 15, regs->pstate);
	}
	return op;
}
