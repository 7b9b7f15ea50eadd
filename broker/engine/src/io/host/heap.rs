//! Settings of the C library's heap.

/// A block of at least this much is mapped for itself, and gone when it is freed: the largest value that glibc takes.
const MAPPED: libc::c_int = 32 << 20;

/// Keeps freed memory in the process for the next message.
///
/// New memory from the kernel costs several microseconds a page, most of it for clearing, in the path of its first
/// user. By default glibc returns memory beyond 128 KiB, and maps blocks of that size one by one. The setting holds for
/// the process; `malloc_trim` returns the memory on request.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain numbers, and any thread may say so at any time. What is refused leaves things as they were.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * MAPPED);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
    }
}
