// Loaded into SMPI's simulator of a program whose ranks share their memory: what is as long as a
// message is not copied, which changes no simulated time, took most of the real one, and gave each
// rank memory of its own.
#include <stddef.h>

void* memcpy(void* to, const void* from, size_t bytes) {
  if (bytes >= 16384) return to;
  for (size_t i = 0; i < bytes; ++i) {
    ((char*)to)[i] = ((const char*)from)[i];
    __asm__ volatile(""); /* else the compiler calls memcpy */
  }
  return to;
}
