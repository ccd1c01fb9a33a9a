"""The compiled library (`profiler/native/*.c`) and its bindings, one module for each C header. Loads no NumPy."""
