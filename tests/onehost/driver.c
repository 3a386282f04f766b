// Stands for the GPU's driver: one device, its attributes and its address on the bus by variables.
#include <stdio.h>
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))
static int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text == NULL ? otherwise : atoi(text);
}

EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int device) {
  char name[32];
  (void)device;
  snprintf(name, sizeof name, "DRIVER_ATTRIBUTE_%d", attribute);
  *value = number(name, 1);
  return number("DRIVER_FAILS", 0);
}
EXPORTED int cuCtxGetDevice(int* device) {
  *device = number("DRIVER_GPU", 0);
  return number("DRIVER_FAILS", 0);
}
EXPORTED int cuDeviceGetPCIBusId(char* text, int size, int device) {
  snprintf(text, (size_t)size, "0000:%02x:00.0", device + 1);
  return 0;
}
