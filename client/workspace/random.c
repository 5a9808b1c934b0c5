#include "client/workspace/random.h"

#include <stdint.h>
#include <sys/random.h>

void sbx_random_hex(char *ret_text, size_t chars)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < chars; i++) {
		uint8_t byte = 0;

		/* So few bytes are there at once from early in the boot on. */
		while (getrandom(&byte, sizeof(byte), 0) != sizeof(byte))
			;
		ret_text[i] = digits[byte & 15];
	}
	ret_text[chars] = '\0';
}
