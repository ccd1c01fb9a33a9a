#include <stdlib.h>
#include <string.h>
#include <stdio.h>
static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}
int main(void)
{
	static char text[20000][16];
	static char *at[20000];
	for (int k = 0; k < 150; k++) {
		for (int i = 0; i < 20000; i++) {
			snprintf(text[i], 16, "%d", i * 7919 % 20011);
			at[i] = text[i];
		}
		qsort(at, 20000, sizeof *at, compare);
	}
	puts(at[0]);
}
