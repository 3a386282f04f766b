/* A library of NCCL's soname that says which file it is. */
const char* stand_in_name(void);
const char* stand_in_name(void) { return STAND_IN_NAME; }
