// What the plugin asks of the NCCL that is loaded: its version alone.
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
