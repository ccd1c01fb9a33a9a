/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Asked for by bcc's headers; nothing of it is needed. */
