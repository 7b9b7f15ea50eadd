/* Preloaded into a process, moves the wall clock that it reads by the nanoseconds in the file $SRTM_WALL_CLOCK_OFFSET
 * (8 bytes, native order), which may change at any time. Other clocks, and other processes, keep theirs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL

static int (*machine_clock)(clockid_t, struct timespec *);
static const volatile int64_t *offset_ns;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("SRTM_WALL_CLOCK_OFFSET");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) abort();
    void *mapped = mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    machine_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (mapped == MAP_FAILED || machine_clock == NULL) abort();
    offset_ns = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (machine_clock == NULL) start(); /* another library's constructor came first */
    int failed = machine_clock(clock, at);
    if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t moved_ns = at->tv_sec * NS + at->tv_nsec + *offset_ns;
        at->tv_sec = moved_ns / NS;
        at->tv_nsec = moved_ns % NS;
    }
    return failed;
}
