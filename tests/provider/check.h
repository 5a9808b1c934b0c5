/*
 * An assertion for threads other than the test's own, where cmocka's can't be used: it names the
 * place and ends the program.
 */
#ifndef SBX_TESTS_PROVIDER_CHECK_H
#define SBX_TESTS_PROVIDER_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                          \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                  \
		}                                                                                 \
	} while (0)

#endif
