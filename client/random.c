#include "client/random.h"

#include <stdint.h>
#include <sys/random.h>
#include <sys/types.h>

void sbx_random_hex(char *ret_text, size_t chars)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t bytes[32];

	for (size_t i = 0; i < chars; i++) {
		/* So few bytes are there at once from early in the boot on. */
		while (i % sizeof(bytes) == 0 &&
		       getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
			;
		ret_text[i] = digits[bytes[i % sizeof(bytes)] & 15];
	}
	ret_text[chars] = '\0';
}
