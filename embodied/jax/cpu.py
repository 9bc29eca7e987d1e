"""Process settings that let XLA use a CPU well, and what kind of CPU it is.

Call `tune` before JAX starts.
"""

import ctypes
import os
import pathlib
import sys

from embodied.core.machine import cores as cores

# XLA hands convolutions and many matrix products to YNNPACK, which runs most of them
# on one thread; without it they go to Eigen, which uses all threads.
_FLAG = "--xla_cpu_experimental_ynn_fusion_type"

# How many threads XLA has; by default as many as cores.
_THREADS = "PJRT_NPROC"

# glibc returns every large buffer to the kernel, so that each step pays again for the
# page faults of all its temporaries. Keep them: no mmap, no trimming, which it heeds in
# the main thread only. Few arenas, as each keeps small ones of its own; with a single
# one, threads wait for each other in every matrix product once compiling has left it in
# pieces (2.5x slower steps, 1.5x compiling).
_MALLOPT = ((-8, 4), (-4, 0), (-1, 2**31 - 1), (-2, 2**26))


def tune() -> None:
    """Set the XLA flag, unless the user did, and keep freed memory in the process."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_FLAG}=".strip()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # Only in glibc.
    if sys.platform == "linux" and mallopt:
        for option, value in _MALLOPT:
            mallopt(option, value)


def compiler_options() -> dict[str, int]:
    """LLVM at its third level takes a fifth longer to compile, for steps as fast."""
    level = "xla_backend_optimization_level"
    return {} if level in os.environ.get("XLA_FLAGS", "") else {level: 2}


def release() -> None:
    """Return the memory that compiling left unused to the system (only in glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if sys.platform == "linux" and trim:
        trim(0)


def limit_threads() -> None:
    """Let XLA compute each operation in one thread, unless the user says otherwise.

    For as many devices as cores: all threads serve every device, so they would wait for
    each other in operations that are shared between threads.
    """
    os.environ.setdefault(_THREADS, "1")


def threads() -> int:
    """How many threads XLA may share an operation between."""
    return int(os.environ.get(_THREADS) or cores())


def has_avx512(info: pathlib.Path = pathlib.Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU has AVX-512; False where `info` is not there, as on a Mac."""
    return info.exists() and "avx512f" in info.read_text()
