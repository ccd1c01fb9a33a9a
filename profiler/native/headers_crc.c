/* SPDX-License-Identifier: Apache-2.0 */
/* What setup.py has seen of the headers that this is built with, for whoever loads it. */
#include <stdint.h>

#ifdef HEADERS_CRC
__attribute__((visibility("default"))) const uint32_t headers_crc = HEADERS_CRC;
#endif
