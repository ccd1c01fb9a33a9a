/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
/* Only old kernels checked the version of a program; no program here asks for it. */
#define LINUX_VERSION_CODE KERNEL_VERSION(5, 8, 0)
