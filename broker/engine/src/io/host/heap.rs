//! What the C library does with memory that was given back to it.

/// A block of at least this much is mapped for itself, and gone when it is freed: the largest value that glibc takes.
const MAPPED: libc::c_int = 32 << 20;

/// Keep what is freed, for the next message: memory that the kernel has to hand out anew costs several microseconds a page, most of it for clearing it, in
/// the path of whoever uses it first. By default glibc gives back what is beyond 128 KiB, and maps blocks of that size one by one. It concerns the process;
/// whoever wants the memory back asks for it (`malloc_trim`).
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain numbers, and any thread may say so at any time. What is refused leaves things as they were.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * MAPPED);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
    }
}
