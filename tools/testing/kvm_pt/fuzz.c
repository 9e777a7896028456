// SPDX-License-Identifier: GPL-2.0
/*
 * Walks of include/linux/kvm_pt_iter.h on a mock page table, as the bytes of an
 * input say; libFuzzer finds the inputs.  Without it, i.e. with
 * -DSTANDALONE, the inputs are the lines of hexadecimal digits on stdin, and
 * pseudo-random ones if there is an argument, which says how many.
 */
#include "../../../virt/kvm/kvm_pt_mock_ops.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *wrong;

	mock_clear_hint = mock_clear_hint_before;
	wrong = kvm_pt_mock_run(data, size);
	if (wrong) {
		fprintf(stderr, "wrong: %s\n", wrong);
		abort();
	}

	return 0;
}

#ifdef STANDALONE
int main(int argc, char **argv)
{
	static uint8_t data[4096];
	unsigned long i, n = argc > 1 ? strtoul(argv[1], NULL, 0) : 0, lines = 0;
	static char line[2 * sizeof(data) + 2];
	uint64_t x = 88172645463325252ULL;
	unsigned int byte;
	size_t len;

	while (!n && fgets(line, sizeof(line), stdin)) {
		for (len = 0; sscanf(line + 2 * len, "%2x", &byte) == 1; len++)
			data[len] = byte;
		LLVMFuzzerTestOneInput(data, len);
		lines++;
	}

	for (i = 0; i < n; i++) {
		for (len = 0; len < 64 + (i & 511); len++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			data[len] = x >> 32;
		}
		LLVMFuzzerTestOneInput(data, len);
	}

	printf("%lu inputs\n", n ? n : lines);
	return 0;
}
#endif
