/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What things cost on x86, in instructions of the host, measured under -icount.
 */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

/* The guest's access itself, with its walk of the page tables. */
#define PRICE_TOUCH	10

/* An exit for a page that is resident: 3567 a page on base, with the access. */
#define PRICE_EXIT	3557

/*
 * A userfaultfd event and what it copies, on top of that: from 23952 a page for
 * chunks of one, and 9630 for chunks of sixteen.
 */
#define PRICE_UFFD	15300
#define PRICE_COPY	5085

/* A window: itself, each entry that is looked at, each page that is mapped. */
#define PRICE_WINDOW	700
#define PRICE_ENTRY	18
#define PRICE_MAP	243

/* A fault that is left alone because of a back-off. */
#define PRICE_SKIP	12

#endif /* SIM_MODEL_H */
