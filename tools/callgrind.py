"""Makes programs of ours run under valgrind on new kernels.

Since version 6.4 the kernel tells a process its auxiliary vector by prctl(PR_GET_AUXV). rustix asks for it, and reads
the vDSO where that says it is; valgrind has unmapped it there, and the program ends with SIGSEGV. Where the call is not
known, rustix reads /proc/self/auxv, which valgrind answers itself. So the call is made unknown, to this process and to
all that it starts. x86-64 only, which is where the counts are made.
"""

from __future__ import annotations

import ctypes
import platform
import struct

PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
PRCTL, PR_GET_AUXV, EINVAL = 157, 0x41555856, 22
LOAD, SAME, RETURN = 0x20, 0x15, 0x06
NUMBER, FIRST_ARGUMENT = 0, 16
ALLOW, FAIL = 0x7FFF0000, 0x00050000

FILTER = (
    (LOAD, 0, 0, NUMBER),
    (SAME, 0, 3, PRCTL),
    (LOAD, 0, 0, FIRST_ARGUMENT),
    (SAME, 0, 1, PR_GET_AUXV),
    (RETURN, 0, 0, FAIL | EINVAL),
    (RETURN, 0, 0, ALLOW),
)
"""What the kernel runs before a system call: a code, how far to jump if it holds and if not, a value."""


def hide_auxiliary_vector() -> None:
    """Makes prctl(PR_GET_AUXV) unknown from here on; it cannot be taken back."""
    if platform.machine() != "x86_64":
        return
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in FILTER))
    program = struct.pack("HxxxxxxQ", len(FILTER), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero) or libc.prctl(
        PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.c_char_p(program), zero, zero
    ):
        raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")
